"""The settings: allowed values, default and meaning of each."""

from __future__ import annotations

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from relay.config.types import (
    AMQP,
    CONNINFO,
    OPTIONS,
    WEBHOOK_SECRET,
    AmqpUrl,
    Archived,
    Conninfo,
    Direction,
    LogFormat,
    LogLevel,
    Names,
    Notify,
    OnDeadKey,
    OnLockExpired,
    Options,
    Printable,
    RolePrefix,
    UnroutablePolicy,
    WebhookSecret,
    host_name,
    seconds,
    setting,
    whole,
    word,
)
from relay.engine.policy import Policy

_POLICY = Policy()
"""The defaults of the engine's policy."""


class Fields(BaseSettings):
    """Every setting by its name without the prefix."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    database_url: Conninfo = setting(SecretStr(""), CONNINFO, "PostgreSQL that holds the queue", shown="libpq's `PG*`")
    listen_url: Conninfo | None = setting(
        None, CONNINFO, "Connection for LISTEN if it differs, for example to bypass PgBouncer", shown="`RELAY_DATABASE_URL`"
    )
    amqp_url: AmqpUrl = setting(
        SecretStr("amqp://guest:guest@localhost/"), AMQP, "RabbitMQ", shown="`AMQP_URL`, else `amqp://guest:guest@localhost/`"
    )
    allow_insecure: bool = setting(
        False,  # noqa: FBT003
        "true or false",
        "Accept options of the URLs that weaken security: `no_verify_ssl`, `sslmode=disable` or `allow`, `channel_binding=disable`, an "
        "`ssl_min_protocol_version` below TLSv1.2",
    )
    schema_name: Printable = setting(
        "public", "1 to 63 printable characters", "Schema of the queue's tables", max_length=63, alias="schema"
    )
    role_prefix: RolePrefix | None = setting(
        None,
        "1 to 54 of a to z, 0 to 9 and _, beginning with a letter and not with pg_",
        "Prefix of the names of this outbox's roles; `relay migrate` reads it",
        shown="from database and schema",
    )
    name: Printable = setting(
        host_name, "1 to 40 printable characters", "Name of this relay in logs, archive and connections", "the host's name", max_length=40
    )
    batch_size: int = whole(1000, 1, 10_000, "Messages of one claim; never more than the window")
    window: int = whole(4000, 1, 100_000, "Messages claimed and not yet settled")
    window_bytes: int = whole(
        64 << 20,
        1 << 16,
        1 << 40,
        "Bytes of memory for messages claimed and not yet settled; answers of handlers may take as much again",
    )
    lock_seconds: float = seconds(_POLICY.lock_seconds, 1, 86_400, "Lock time: how long the messages of a dead relay stay locked")
    poll_interval: float = seconds(1, 0.05, 3600, "Longest pause between two polls of an empty queue, in seconds")
    prepare: bool = setting(True, "true or false", "Whether to prepare statements; set false behind PgBouncer in transaction mode")  # noqa: FBT003
    notify: Notify = word(_POLICY.notify, Notify, "When an INSERT notifies: while a relay is idle, always, never")
    max_attempts: int = whole(_POLICY.retry.max_attempts, 1, 1_000_000, "Failed attempts before a message is archived `failed`")
    backoff_base: float = seconds(
        _POLICY.retry.backoff_base, 0, 86_400, "Seconds to wait after the first failure, doubled after each failure"
    )
    backoff_max: float = seconds(_POLICY.retry.backoff_max, 0, 604_800, "Longest wait between two attempts, in seconds")
    unroutable: UnroutablePolicy = setting(
        _POLICY.retry.unroutable,
        "one of retry, reject, accept, or a list such as retry,audit=accept",
        "Policy for messages that no queue takes, for all exchanges or by exchange",
    )
    on_dead_key: OnDeadKey = word("continue", OnDeadKey, "After a dead message: its ordering key continues, or waits for an operator")
    on_lock_expired: OnLockExpired = word("retry", OnLockExpired, "A message whose lock expired: sent again, or archived `lock_expired`")
    archive: Archived = word("all", Archived, "What is archived: every message, or all messages except successes")
    direction: Direction = word("outbox", Direction, "What the schema holds: messages to send, or received messages for workers")
    allowed_exchanges: Names | None = setting(
        None, "names or globs between commas, amq.default for the default exchange; leave it out to allow all",
        "Exchanges that messages may name, such as `orders,audit.*`", shown="all",
    )  # fmt: skip
    max_body_bytes: int = whole(_POLICY.max_body_bytes, 1, 128 << 20, "Largest payload; the default is RabbitMQ 4's own limit")
    retention_days: int = whole(30, 0, 36_500, "Days that the archive keeps successes, 0 for ever")
    dead_retention_days: int = whole(365, 0, 36_500, "Days that the archive keeps dead messages, 0 for ever")
    received_retention_days: int = whole(30, 0, 36_500, "Days that consumers' marks of handled messages stay, 0 for ever")
    dedup_seconds: int = whole(86_400, 1, 31_536_000, "How long a `dedup_key` is known, in seconds")
    bundle_seconds: float = seconds(1, 0, 86_400, "How long messages with a `bundle_key` are collected")
    bundle_max_messages: int = whole(1000, 1, 10_000, "Messages of one bundle")
    bundle_max_bytes: int = whole(1 << 20, 1, 128 << 20, "Largest bundle, in bytes of its contents")
    http_host: str = setting("127.0.0.1", "a host name or an address", "Where /metrics, /livez and /readyz listen", min_length=1)
    http_port: int | None = whole(
        0, 0, 65_535, "Port of /metrics, /livez and /readyz; 0 picks a free port, empty turns them off", " or empty"
    )
    log_level: LogLevel = word("info", LogLevel, "Lowest level of log lines")
    log_format: LogFormat | None = word(None, LogFormat, "Format of log lines", shown="`console` on a terminal, else `json`")
    webhook_url: SecretStr | None = setting(
        None, "a URL of http or https", "Where `relay dead watch` posts each message, as with `--webhook`", shown="none"
    )
    webhook_secret: WebhookSecret | None = setting(None, WEBHOOK_SECRET, "Signs the webhooks of `relay dead watch`")
    drain_seconds: float = seconds(20, 0, 3600, "How long SIGTERM waits for confirms; at most 0.8 of the lock time")
    exit_after_idle: float | None = seconds(
        None, 0, 86_400, "Exit after this many idle seconds in which both servers are available", " or empty"
    )

    receive_queues: Names | None = setting(
        None, "names of queues between commas", "Queues that `relay receive` takes messages from", shown="none"
    )
    receive_prefetch: int = whole(1000, 1, 65_535, "Messages of one queue that `relay receive` holds unacknowledged")
    receive_bytes: int = whole(
        134_217_728,
        1 << 20,
        1 << 40,
        "Bytes in memory of messages that `relay receive` holds unacknowledged, of all queues together; one message may be larger",
    )
    inbox_limit: int = whole(100_000, 1, 1_000_000_000, "Messages in the inbox at which `relay receive` stops consuming from the queues")
    work_concurrency: int = whole(10, 1, 1000, "Handlers that a worker runs at the same time")
    work_batch: int = whole(1, 1, 10_000, "Messages in one call of a worker's handler; more than one are passed as a list")
    work_seconds: float | None = seconds(
        300, 0.05, 604_800, "Time limit of a handler; after it the message's lock expires. Empty: no limit", " or empty"
    )

    lake_url: str | None = setting(None, "a folder, s3://bucket/path or gs://bucket/path", "Location of the lake", min_length=1)
    lake_options: Options = setting(
        SecretStr("{}"), OPTIONS, "Keys and endpoint of the lake's object store, as `deltalake` names them", shown="none"
    )
    pipeline_database_url: Conninfo | None = setting(
        None, CONNINFO, "PostgreSQL that the pipeline reads, for example with a login of the role `etl`", shown="`RELAY_DATABASE_URL`"
    )
    pipeline_connections: int = whole(8, 1, 1000, "Connections to PostgreSQL that all tasks of a pipeline's job may have open together")
    pipeline_snapshot_seconds: float = seconds(
        30,
        0.1,
        3600,
        "Longest time of one pipeline statement, which delays vacuum meanwhile. A longer verification is split; any other statement is "
        "cancelled",
    )
    pipeline_replica_url: Conninfo | None = setting(
        None, CONNINFO, "Standby of the pipeline's PostgreSQL from which an export reads rows", shown="none"
    )
