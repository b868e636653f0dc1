"""Enqueueing in the transactions of other libraries: SQLAlchemy, Django, asyncpg. Each module needs its library; nothing else does."""
