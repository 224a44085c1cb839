-- Log to a file system: the columns of its partitions.
SELECT auction, bidder, price, date_time,
  to_char(date_time, 'YYYY-MM-DD') AS date, to_char(date_time, 'HH:MI') AS time
FROM bid
