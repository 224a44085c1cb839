-- Auctions with at least as many bids as auctions have on average.
SELECT a.id AS auction_id, a.item_name AS auction_item_name, count(b.auction) AS bid_count
FROM auction a
JOIN bid b ON a.id = b.auction
GROUP BY a.id, a.item_name
HAVING count(b.auction) >= (SELECT count(*) / nullif(count(DISTINCT auction), 0) FROM bid)
