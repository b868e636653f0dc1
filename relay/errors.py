"""Errors of the relay; each message is one sentence that says what to do."""

from __future__ import annotations

import signal


class RelayError(Exception):
    """Base of every error that the relay raises on purpose."""

    exit_code = 1


class SettingsError(RelayError):
    """A setting is missing or wrong; the message lists all of them."""

    exit_code = 2


class StoreError(RelayError):
    """The database did not answer or refused; waiting may help."""

    def __init__(
        self,
        message: str,
        *,
        row_is_guilty: bool = False,
        in_passing: bool = False,
        unprintable: bool = False,
        no_partition: bool = False,
        unanswered: bool = False,
        refused: bool = False,
        broken_trigger: bool = False,
    ) -> None:
        super().__init__(message)
        self.row_is_guilty = row_is_guilty
        """A value of one of the rows was refused (SQLSTATE class 22 or 23), so the others may pass without it."""
        self.refused = refused
        """The statement itself failed, on a connection that is well and with the rights that it needs: trying it again may not help."""
        self.broken_trigger = broken_trigger
        """A trigger of the application's names what is not there or lacks a right: once that is corrected the statement may succeed."""
        self.in_passing = in_passing
        """A lock of somebody else, a deadlock or a serialization failure: the connection is well, the same statement may pass now."""
        self.unprintable = unprintable
        """A value is too large for PostgreSQL to hand out (SQLSTATE 54000), and a claim will meet it again."""
        self.no_partition = no_partition
        """The archive has no partition for this day; once it is made the same statement passes."""
        self.unanswered = unanswered
        """The answer did not come in time, or not all of it: a smaller one may."""


class NewConnectionError(StoreError):
    """The connection is another one than before, perhaps to another server: positions from before may be wrong there."""


class WrongDirectionError(StoreError):
    """The schema holds an inbox where an outbox is asked for, or an outbox where an inbox is."""


class BrokerError(RelayError):
    """The broker did not answer or refused the connection; waiting may help."""


class MigrationError(RelayError):
    """The schema cannot be brought up to date as it is."""


class LocalServerError(RelayError):
    """A private PostgreSQL or RabbitMQ could not be had; the message is the line to type."""


class PipelineError(RelayError):
    """A job of the pipeline was refused or failed; lake and archive are as they were."""


class UnreachableError(PipelineError):
    """PostgreSQL or the object store does not answer; the next run may find it."""

    exit_code = 4


class ConflictError(PipelineError):
    """Another job was faster; nothing of what this one was about to commit is in the lake."""

    exit_code = 6


class StoppedError(PipelineError):
    """A signal has stopped the job behind a commit."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{signal.Signals(number).name} stopped it.")
        self.exit_code = 128 + number

    @classmethod
    def behind(cls, error: BaseException | None) -> StoppedError | None:
        """The signal that an error comes of, None without any: Spark's JVM may die of it too, and hide it behind errors of its own."""
        while error is not None and not isinstance(error, KeyboardInterrupt):
            error = error.__cause__ or error.__context__
        return None if error is None else cls(error.args[0] if error.args else signal.SIGINT)


class LakeError(PipelineError):
    """The lake is not what this job needs: missing, of another form, not writable."""


class DamagedError(LakeError):
    """A file of the lake is missing, or its bytes cannot be decoded; one that cannot be reached is a plain LakeError."""
