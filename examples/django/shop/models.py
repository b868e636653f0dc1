"""What the shop knows."""

from django.db import models


class Invoice(models.Model):
    """What a customer owes."""

    total = models.IntegerField()

    class Meta:
        """Of all examples, so that ../schema.sql makes the table; a project of its own would have a migration."""

        db_table = "invoice"
        managed = False

    def __str__(self) -> str:
        """For people."""
        return f"invoice {self.pk}"
