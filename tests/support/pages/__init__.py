"""README and docs against the code, and the parts of them that are generated."""
