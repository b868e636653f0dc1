#!/bin/sh
# Healthy: PostgreSQL takes connections from other containers, and pg_cron is at work. By TCP, because the server that runs the
# init scripts answers on the socket already.
set -eu
user=${POSTGRES_USER:-postgres}
export PGHOST=127.0.0.1 PGUSER="$user" PGPASSWORD="${POSTGRES_PASSWORD:-}" PGDATABASE="${POSTGRES_DB:-$user}" PGCONNECT_TIMEOUT=3
pg_isready -q
psql -qAtX -c "SELECT 1 / count(*) FROM pg_stat_activity, pg_extension WHERE backend_type = 'pg_cron launcher' AND extname = 'pg_cron'" >/dev/null
