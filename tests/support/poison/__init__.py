"""Bad and odd messages: their catalogue, the worlds they go to, and what must come of them."""
