"""`relay dead watch`: its loop, its options and its actions."""
