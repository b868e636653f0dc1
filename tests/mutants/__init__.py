"""Proof that the tests bite: safeguards that are switched off one by one in a copy, each with the test that must turn red."""
