-- Winning bids.
SELECT
  id, item_name, description, initial_bid, reserve, date_time, expires, seller, category,
  auction, bidder, price, bid_date_time
FROM (
  SELECT a.*, b.auction, b.bidder, b.price, b.date_time AS bid_date_time,
    row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time ASC) AS rownum
  FROM auction a, bid b
  WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
) tmp
WHERE rownum <= 1
