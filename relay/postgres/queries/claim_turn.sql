-- Sent along before a claim while other relays live, in one transaction with it: claims one after another find what is free, claims at once
-- find each other's messages, wait for none of them and look at each one twice (docs/decisions/0024).
SELECT @schema@.queue_message_claim_turn()
