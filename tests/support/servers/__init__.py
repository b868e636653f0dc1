"""Servers of the tests' own, and what is on them: clusters, standbys, poolers, stores, certificates, logins."""
