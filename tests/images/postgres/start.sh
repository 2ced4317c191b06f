#!/bin/bash
# On first use a cluster with one user, who owns one database; then the server.
set -euo pipefail
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    # shellcheck disable=SC2086
    initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" -E UTF8 --locale=C.UTF-8 \
        --auth-local=trust ${POSTGRES_INITDB_ARGS:-}
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    echo "CREATE DATABASE \"$POSTGRES_DB\"" | postgres --single -D "$PGDATA" postgres
fi
exec postgres -D "$PGDATA" -c listen_addresses='*'
