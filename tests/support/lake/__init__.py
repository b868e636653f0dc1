"""Lakes as tests of the pipeline fill, damage and read them."""
