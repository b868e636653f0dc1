"""`relay status`: reads the figures of the queue, and words them."""
