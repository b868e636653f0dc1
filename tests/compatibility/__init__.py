"""The contract and acceptance tests on each version of PostgreSQL and RabbitMQ that can be had; `python -m tests.compatibility`."""
