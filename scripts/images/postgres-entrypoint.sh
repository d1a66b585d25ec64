#!/bin/sh
# Entrypoint of the PostgreSQL image that `make images` builds. It honours the
# variables of the official image that are read here: POSTGRES_USER,
# POSTGRES_PASSWORD, POSTGRES_DB, POSTGRES_INITDB_ARGS, POSTGRES_HOST_AUTH_METHOD
# and PGDATA. As there, arguments that start with "-" or "postgres" go to the server,
# and anything else is run as it is.
set -eu

case "${1:-postgres}" in
-*) set -- postgres "$@" ;;
esac
if [ "${1:-postgres}" != postgres ]; then
	exec "$@"
fi
[ $# -eq 0 ] || shift

bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
PATH="$bin:$PATH"
export PGDATA="${PGDATA:-/var/lib/postgresql/data}"

if [ "$(id -u)" = 0 ]; then
	# The server refuses to run as root.
	mkdir -p "$PGDATA" /run/postgresql
	chown postgres:postgres "$PGDATA" /run/postgresql
	chmod 700 "$PGDATA"
	exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" postgres "$@"
fi

init() {
	user="${POSTGRES_USER:-postgres}"
	database="${POSTGRES_DB:-$user}"
	method="${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}"
	if [ -z "${POSTGRES_PASSWORD:-}" ] && [ "$method" != trust ]; then
		echo >&2 "POSTGRES_PASSWORD must be set, or POSTGRES_HOST_AUTH_METHOD=trust"
		exit 1
	fi
	secret=$(mktemp)
	printf '%s\n' "${POSTGRES_PASSWORD:-none}" >"$secret"
	# The unquoted variable holds several arguments, as in the official image.
	# shellcheck disable=SC2086
	initdb --username="$user" --pwfile="$secret" --encoding=UTF8 ${POSTGRES_INITDB_ARGS:-}
	rm -f "$secret"
	echo "host all all all $method" >>"$PGDATA/pg_hba.conf"
	if [ "$database" != postgres ]; then
		# Single-user mode: nobody can take a first, half-ready server for the real one.
		printf 'CREATE DATABASE "%s"\n' "$(printf '%s' "$database" | sed 's/"/""/g')" |
			postgres --single -D "$PGDATA" postgres >/dev/null
	fi
}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
	init
fi
exec postgres -c 'listen_addresses=*' "$@"
