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
        """A single row may be the cause (SQLSTATE class 22, 23 or P0), so the other rows may succeed without it."""
        self.refused = refused
        """The statement itself failed; connection and rights are in order, so trying it again may not help."""
        self.broken_trigger = broken_trigger
        """An application's trigger names a missing object or lacks a right: once corrected, the statement may succeed."""
        self.in_passing = in_passing
        """Another session's lock, a deadlock or a serialization failure: the connection works, and the same statement may succeed now."""
        self.unprintable = unprintable
        """PostgreSQL cannot return a value, which is too large or has a character that UTF-8 lacks. A later claim will meet it again."""
        self.no_partition = no_partition
        """The archive has no partition for this day; once the partition exists, the same statement succeeds."""
        self.unanswered = unanswered
        """The answer did not arrive completely in time; a smaller answer may arrive in time."""


class NewConnectionError(StoreError):
    """The connection is new, perhaps to another server, and earlier positions may be wrong on that server."""


class WrongDirectionError(StoreError):
    """The schema holds an inbox but an outbox is needed, or the reverse."""


class BrokerError(RelayError):
    """The broker did not answer or refused the connection; waiting may help."""


class MigrationError(RelayError):
    """The schema cannot be brought up to date as it is."""


class LocalServerError(RelayError):
    """A private PostgreSQL or RabbitMQ could not be started; the message is the command to type."""


class PipelineError(RelayError):
    """A job of the pipeline was refused or failed; lake and archive are as they were."""


class UnreachableError(PipelineError):
    """PostgreSQL or the object store does not answer; the next run may reach it."""

    exit_code = 4


class ConflictError(PipelineError):
    """Another job was faster; nothing that this job was about to commit is in the lake."""

    exit_code = 6


class StoppedError(PipelineError):
    """A signal has stopped the job after a commit."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{signal.Signals(number).name} stopped it.")
        self.exit_code = 128 + number

    @classmethod
    def behind(cls, error: BaseException | None) -> StoppedError | None:
        """The signal that caused an error; None without a signal. A signal may also kill Spark's JVM, whose errors then hide the signal."""
        while error is not None and not isinstance(error, KeyboardInterrupt):
            error = error.__cause__ or error.__context__
        return None if error is None else cls(error.args[0] if error.args else signal.SIGINT)


class LakeError(PipelineError):
    """The lake does not fit this job: it is missing, has another form, or is not writable."""


class DamagedError(LakeError):
    """A file of the lake is missing, or its bytes cannot be decoded; a file that cannot be reached is a plain LakeError."""
