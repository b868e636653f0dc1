"""Pay an invoice and announce it in one transaction, with a session of SQLAlchemy's; see README.md."""

from contextlib import suppress
from uuid import UUID

from invoices import Invoice, RefusedError, charge, database_url, paid
from sqlalchemy import create_engine
from sqlalchemy.orm import Session, sessionmaker

from relay.integrations.sqlalchemy import enqueue


def pay(sessions: sessionmaker[Session], total: int) -> UUID:
    """Write an invoice and the message about it, both or neither; return the message's id."""
    with sessions.begin() as session:
        invoice = Invoice(total=total)
        session.add(invoice)
        session.flush()  # gives the invoice its id
        message_id = enqueue(session, paid(invoice))
        charge(invoice)
    return message_id


if __name__ == "__main__":
    engine = create_engine(database_url())
    sessions = sessionmaker(engine)
    print(pay(sessions, 120))
    # The bank refuses this one: neither the invoice nor its message is there.
    with suppress(RefusedError):
        pay(sessions, 5000)
    engine.dispose()
