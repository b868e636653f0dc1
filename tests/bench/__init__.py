"""Measurements: what things cost, beside what they could be compared with. No tests of the suite; `make bench` and its kin run them."""
