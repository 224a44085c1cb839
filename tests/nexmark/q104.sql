-- Auctions that do not have few bids; bids without an auction are too many to be among the few.
SELECT a.id AS auction_id, a.item_name AS auction_item_name
FROM auction a
WHERE a.id NOT IN (SELECT b.auction FROM bid b GROUP BY b.auction HAVING count(*) < 5)
