"""Errors of the relay; each message is one sentence that says what to do."""

from __future__ import annotations


class RelayError(Exception):
    """Base of every error that the relay raises on purpose."""

    exit_code = 1


class SettingsError(RelayError):
    """A setting is missing or wrong; the message lists all of them."""

    exit_code = 2


class StoreError(RelayError):
    """The database did not answer or refused; waiting may help."""

    def __init__(self, message: str, *, waiting_helps: bool = True, row_is_guilty: bool = False) -> None:
        super().__init__(message)
        self.waiting_helps = waiting_helps
        self.row_is_guilty = row_is_guilty
        """A value of one of the rows was refused (SQLSTATE class 22 or 23), so the others may pass without it."""


class BrokerError(RelayError):
    """The broker did not answer or refused the connection; waiting may help."""


class MigrationError(RelayError):
    """The schema cannot be brought up to date as it is."""


class LocalServerError(RelayError):
    """A private PostgreSQL or RabbitMQ could not be had; the message is the line to type."""
