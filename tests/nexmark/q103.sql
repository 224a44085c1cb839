-- Auctions with at least five bids.
SELECT a.id AS auction_id, a.item_name AS auction_item_name
FROM auction a
WHERE a.id IN (SELECT b.auction FROM bid b GROUP BY b.auction HAVING count(*) >= 5)
