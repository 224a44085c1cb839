-- What `highwater demo` runs: bids of an auction house, every two seconds counted, the busiest auctions at any time, and
-- what was hot written back to Kafka. On a Kafka of your own: KAFKA=127.0.0.1:9092 highwater run demo.sql --data demo.db

CREATE SOURCE bids (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  date_time TIMESTAMP,
  WATERMARK FOR date_time AS date_time - INTERVAL '1' SECOND
)
WITH (
  connector = 'kafka',
  topic = 'bids',
  properties.bootstrap.server = '${KAFKA:-127.0.0.1:9092}',
  scan.startup.mode = 'earliest'
)
FORMAT PLAIN ENCODE JSON;

-- A window is final once it is closed: it appears once and never changes.
CREATE MATERIALIZED VIEW closed_windows AS
SELECT window_start, window_end, count(*) AS bids, max(price) AS highest
FROM TUMBLE(bids, date_time, INTERVAL '2' SECOND)
GROUP BY window_start, window_end
EMIT ON WINDOW CLOSE;

-- One row per auction, up to date after every bid.
CREATE MATERIALIZED VIEW auctions AS
SELECT auction, count(*) AS bids, max(price) AS highest
FROM bids
GROUP BY auction;

CREATE SINK hot_auctions AS
SELECT window_start, auction, count(*) AS bids
FROM TUMBLE(bids, date_time, INTERVAL '2' SECOND)
GROUP BY window_start, window_end, auction
EMIT ON WINDOW CLOSE
WITH (
  connector = 'kafka',
  topic = 'hot_auctions',
  properties.bootstrap.server = '${KAFKA:-127.0.0.1:9092}'
)
FORMAT PLAIN ENCODE JSON;
