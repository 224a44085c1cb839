-- Bounded side input: the side is a table.
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bid b
JOIN side_input s ON b.auction % 10 = s.key
