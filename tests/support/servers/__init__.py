"""Servers of the tests' own, and what stands on them: clusters, standbys, poolers, stores, certificates, logins."""
