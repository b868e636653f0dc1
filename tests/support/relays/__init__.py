"""Relays and commands as processes, and what they show, send and are held to."""
