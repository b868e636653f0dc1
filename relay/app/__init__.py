"""Composition roots: the only place where settings meet components."""
