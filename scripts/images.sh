#!/usr/bin/env bash
# Builds a PostgreSQL and a Redis image from Debian packages, for machines whose
# Docker engine reaches no image registry. Both honour the environment variables
# and arguments of the official images that fencepost uses.
#
#   FENCEPOST_POSTGRES_IMAGE, FENCEPOST_REDIS_IMAGE   names (fencepost/...:local)
#   FENCEPOST_IMAGE_SUITE                             Debian release (bookworm)
#   FORCE=1                                           build again what is there
set -euo pipefail
cd "$(dirname "$0")"

postgres=${FENCEPOST_POSTGRES_IMAGE:-fencepost/postgres:local}
redis=${FENCEPOST_REDIS_IMAGE:-fencepost/redis:local}
suite=${FENCEPOST_IMAGE_SUITE:-bookworm}

# What the images are made from; an image made from something else is built again.
recipe=$(cat images.sh images/*.sh <(echo "$suite") | sha256sum | cut -c1-16)

have() {
	[ "${FORCE:-}" != 1 ] &&
		[ "$(docker image inspect --format '{{index .Config.Labels "org.fencepost.recipe"}}' "$1" 2>/dev/null)" = "$recipe" ]
}

if have "$postgres" && have "$redis"; then
	echo "images are there: $postgres $redis"
	exit 0
fi

if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
	echo >&2 "building images takes root and debootstrap (apt-get install debootstrap)"
	exit 1
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

echo "building $postgres and $redis from Debian $suite"
log=$root.log
if ! debootstrap --variant=minbase --include=postgresql,redis-server "$suite" "$root" >"$log" 2>&1; then
	tail -n 30 "$log" >&2
	rm -f "$log"
	exit 1
fi
rm -f "$log"

# Both images come from one tree, so the engine stores it once.
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/lib/postgresql/* \
	"$root"/usr/share/{doc,man,locale,info}/* "$root"/etc/redis "$root"/etc/postgresql/*
install -d -o root -g root "$root/data"
install -m 755 images/postgres-entrypoint.sh images/redis-entrypoint.sh "$root/usr/local/bin/"

import() { # name, then changes
	local name=$1 changes=() old
	old=$(docker image inspect --format '{{.Id}}' "$name" 2>/dev/null || true)
	shift
	for change in "$@" "ENV LANG=C.UTF-8" "LABEL org.fencepost.recipe=$recipe"; do
		changes+=(--change "$change")
	done
	tar --numeric-owner -C "$root" --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' -c . |
		docker import "${changes[@]}" - "$name" >/dev/null
	echo "built $name"
	# The image that had the name; in use, it stays.
	[ -z "$old" ] || docker image rm "$old" >/dev/null 2>&1 || true
}

import "$postgres" \
	'ENTRYPOINT ["/usr/local/bin/postgres-entrypoint.sh"]' 'CMD ["postgres"]' \
	'EXPOSE 5432' \
	'ENV PGDATA=/var/lib/postgresql/data' 'VOLUME /var/lib/postgresql/data'
import "$redis" \
	'ENTRYPOINT ["/usr/local/bin/redis-entrypoint.sh"]' 'CMD ["redis-server"]' \
	'EXPOSE 6379' 'WORKDIR /data' 'VOLUME /data'
