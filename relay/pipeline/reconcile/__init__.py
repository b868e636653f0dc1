"""`relay pipeline reconcile`: compares the lake with consumers' receipts."""
