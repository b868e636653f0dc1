"""`python manage.py pay`."""

from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand

from shop.payments import RefusedError, pay


class Command(BaseCommand):
    """Pays one invoice, and fails to pay another."""

    help = "Pay one invoice, and fail to pay another"

    def handle(self, **_options: Any) -> None:
        """Print the id of the message that is on its way."""
        self.stdout.write(str(pay(120)))
        # The bank refuses this one: neither the invoice nor its message is there.
        with suppress(RefusedError):
            pay(5000)
