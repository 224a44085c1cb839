-- The auctions with the most bids.
SELECT a.id AS auction_id, a.item_name AS auction_item_name, count(b.auction) AS bid_count
FROM auction a
JOIN bid b ON a.id = b.auction
GROUP BY a.id, a.item_name
ORDER BY bid_count DESC, auction_id
LIMIT 20
