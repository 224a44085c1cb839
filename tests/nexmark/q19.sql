-- Auction top ten price.
SELECT *
FROM (
  SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS rank_number
  FROM bid
) ranked
WHERE rank_number <= 10
