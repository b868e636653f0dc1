"""What tests of every tier share: servers, databases, queues, and the record of documented behaviours."""
