-- User sessions: how many bids a person makes in each period of activity.
SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM SESSION(bid PARTITION BY bidder, date_time, INTERVAL '10' SECOND)
GROUP BY bidder, window_start, window_end
