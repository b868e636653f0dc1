#!/bin/sh
# Hands over to the official entry point, with pg_cron preloaded for the database of the outbox. Its first start needs that too: the extension
# can be made only where it is loaded, and only in the one database that it serves. Jobs run in background workers, so they need no password.
set -eu
[ "${1:-postgres}" = postgres ] || exec docker-entrypoint.sh "$@"
[ "$#" = 0 ] || shift
exec docker-entrypoint.sh postgres \
    -c shared_preload_libraries=pg_cron \
    -c cron.database_name="${POSTGRES_DB:-${POSTGRES_USER:-postgres}}" \
    -c cron.use_background_workers=on \
    -c max_worker_processes=16 \
    "$@"
