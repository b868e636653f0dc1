"""Moving from another outbox: its table is read by a layout, watched, switched over at one boundary, emptied, and returned if necessary."""
