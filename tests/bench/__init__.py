"""Measurements of what things cost, compared with a baseline. They are not tests of the suite; `make bench` and its kin run them."""
