-- The least of the winning bids.
SELECT min(final) AS min_final
FROM (
  SELECT auction.id, max(price) AS final
  FROM auction, bid
  WHERE bid.auction = auction.id AND bid.date_time BETWEEN auction.date_time AND auction.expires
  GROUP BY auction.id
) q
