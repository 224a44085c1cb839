-- Bids of an auction house, from Kafka into views that are always up to date, and back into Kafka.
--
--   KAFKA=127.0.0.1:9092 highwater run docs/examples/bids.sql --data bids.db
--
-- The topic bids carries JSON such as
--   {"auction":1000,"bidder":2001,"price":250,"channel":"Google","url":"https://…","date_time":"2026-01-01T00:00:00.125","extra":"…"}

CREATE SOURCE IF NOT EXISTS bids (
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  channel VARCHAR,
  url VARCHAR,
  date_time TIMESTAMP,
  extra VARCHAR,
  WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND
)
WITH (
  connector = 'kafka',
  topic = 'bids',
  properties.bootstrap.server = '${KAFKA:-127.0.0.1:9092}',
  scan.startup.mode = 'earliest'
)
FORMAT PLAIN ENCODE JSON;

-- One row per auction and ten seconds, once the ten seconds are over: it is final and never changes again.
CREATE MATERIALIZED VIEW IF NOT EXISTS bids_per_auction AS
SELECT window_start, window_end, auction, count(*) AS bids, max(price) AS highest
FROM TUMBLE(bids, date_time, INTERVAL '10' SECOND)
GROUP BY window_start, window_end, auction
EMIT ON WINDOW CLOSE;

-- One row per bidder, changed by every bid.
CREATE MATERIALIZED VIEW IF NOT EXISTS bidders AS
SELECT bidder, count(*) AS bids, sum(price) AS total, max(price) AS highest
FROM bids
GROUP BY bidder;

-- A closed window is a fact, so the topic takes one record for each and no corrections.
CREATE SINK IF NOT EXISTS bids_out FROM bids_per_auction
WITH (
  connector = 'kafka',
  topic = 'bids_out',
  properties.bootstrap.server = '${KAFKA:-127.0.0.1:9092}'
)
FORMAT PLAIN ENCODE JSON;

-- A bidder's row changes, so each record carries its key and replaces the one before.
CREATE SINK IF NOT EXISTS bidders_out FROM bidders
WITH (
  connector = 'kafka',
  topic = 'bidders_out',
  properties.bootstrap.server = '${KAFKA:-127.0.0.1:9092}',
  primary_key = 'bidder'
)
FORMAT UPSERT ENCODE JSON;
