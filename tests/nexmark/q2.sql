-- Selection: bids on certain auctions.
SELECT auction, price
FROM bid
WHERE auction = 1007 OR auction = 1020 OR auction = 1101 OR auction = 1119 OR auction = 1187
