"""`relay dead watch`: the loop, its options and its actions."""
