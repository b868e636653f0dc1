"""`relay pipeline reconcile`: compares the messages in the lake with the receipts of consumers."""
