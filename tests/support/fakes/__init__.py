"""Scripted adapters, harnesses and virtual time for tests of the core."""
