-- Average selling price by seller: over the last ten auctions that ended.
SELECT q.seller, q.date_time, avg(q.final) OVER (
  PARTITION BY q.seller ORDER BY q.date_time ROWS BETWEEN 10 PRECEDING AND CURRENT ROW
) AS avg
FROM (
  SELECT
    row_number() OVER (PARTITION BY a.id, a.seller ORDER BY b.price DESC, b.date_time) AS rank,
    a.seller, b.price AS final, b.date_time
  FROM auction AS a, bid AS b
  WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
) AS q
WHERE q.rank <= 1
