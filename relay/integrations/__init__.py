"""Enqueueing in the transactions of SQLAlchemy, Django and asyncpg. Only the module of a library needs that library."""
