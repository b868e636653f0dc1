"""`relay dead watch`: the loop, its options and what it does with a dead message."""
