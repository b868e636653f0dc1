"""`relay pipeline reconcile`: the lake compared with consumers' receipts."""
