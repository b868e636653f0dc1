"""Coming from another outbox: its table is read by a layout, watched, switched over at one boundary, emptied, and given back if need be."""
