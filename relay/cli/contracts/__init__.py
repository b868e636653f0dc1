"""`relay contract`: reads a schema, and checks archived messages against it."""
