#!/usr/bin/env bash
# Builds images of PostgreSQL, Redis and Valkey from Debian packages, for machines whose
# Docker engine reaches no image registry, and for tests on other versions than the
# installed ones. Arguments are Debian releases, or "all"; default bookworm.
#
#   suite      PostgreSQL  Redis  Valkey
#   bullseye   13          6.0
#   bookworm   15          7.0
#   trixie     17          8.0    8.1
#   sid        18          8.0    9.1
#
# Each gives fencepost/postgres:SUITE and fencepost/redis:SUITE (and fencepost/valkey:SUITE),
# which honour the environment variables and arguments of the official images that fencepost
# uses, and fencepost/tests:SUITE, which has all servers and poolers for tests inside it.
#
# An image is built once, until this recipe changes: sid is what it was on that day.
#
#   FENCEPOST_IMAGE_SUITE    the suite, where no argument names one
#   FENCEPOST_IMAGE_MIRROR   where the packages come from; a snapshot pins them (debootstrap's default)
#   FORCE=1                  build again what is there
set -euo pipefail
cd "$(dirname "$0")"

# packages SUITE: prints the packages installed in the tree from which all images of a suite are made.
packages() {
	echo postgresql redis-server pgbouncer pgpool2
	case $1 in
	trixie | sid) echo valkey-server ;;
	esac
}

# images SUITE: the images of a suite.
images() {
	echo postgres redis tests
	case $1 in
	trixie | sid) echo valkey ;;
	esac
}

# have SUITE RECIPE: every image is there and was made by this recipe.
have() {
	local image
	[ "${FORCE:-}" != 1 ] || return 1
	for image in $(images "$1"); do
		[ "$(docker image inspect --format '{{index .Config.Labels "org.fencepost.recipe"}}' \
			"fencepost/$image:$1" 2>/dev/null)" = "$2" ] || return 1
	done
}

# tree SUITE ROOT: the files of a small Debian with the servers in it.
tree() {
	local wanted log=$2.log
	wanted=$(packages "$1" | xargs | tr ' ' ,)
	if ! debootstrap --variant=minbase --include="$wanted" "$1" "$2" ${FENCEPOST_IMAGE_MIRROR:-} >"$log" 2>&1; then
		tail -n 30 "$log" "$2/debootstrap/debootstrap.log" >&2 || true
		rm -f "$log"
		return 1
	fi
	rm -rf "$log" "$2"/var/cache/apt/* "$2"/var/lib/apt/lists/* "$2"/var/lib/postgresql/* \
		"$2"/usr/share/{doc,man,locale,info}/* "$2"/etc/redis "$2"/etc/valkey "$2"/etc/postgresql/*
	install -d -o root -g root "$2/data"
	install -m 755 images/postgres-entrypoint.sh images/redis-entrypoint.sh "$2/usr/local/bin/"
}

# tag NAME CHANGE...: a name for the tree with a configuration of its own; the engine stores the files once.
tag() {
	local name=$1 changes=() container old
	shift
	for change in "$@"; do
		changes+=(--change "$change")
	done
	old=$(docker image inspect --format '{{.Id}}' "$name" 2>/dev/null || true)
	container=$(docker create "$base" sh)
	docker commit "${changes[@]}" "$container" "$name" >/dev/null
	docker rm "$container" >/dev/null
	# The image that had the name before. If a container uses it, it stays.
	[ -z "$old" ] || docker image rm "$old" >/dev/null 2>&1 || true
	echo "built $name"
}

redis_like() { # name, program
	tag "$1" "ENTRYPOINT [\"/usr/local/bin/redis-entrypoint.sh\"]" "CMD [\"$2\"]" \
		"ENV FENCEPOST_REDIS_PROGRAM=$2" 'EXPOSE 6379' 'WORKDIR /data' 'VOLUME /data'
}

build() { # suite, recipe
	local suite=$1 base
	echo "building the images of Debian $suite"
	root=$(mktemp -d)
	tree "$suite" "$root"
	base=$(tar --numeric-owner -C "$root" --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' -c . |
		docker import --change "ENV LANG=C.UTF-8" --change "LABEL org.fencepost.recipe=$2" -)
	rm -rf "$root"
	tag "fencepost/postgres:$suite" \
		'ENTRYPOINT ["/usr/local/bin/postgres-entrypoint.sh"]' 'CMD ["postgres"]' \
		'EXPOSE 5432' 'ENV PGDATA=/var/lib/postgresql/data' 'VOLUME /var/lib/postgresql/data'
	redis_like "fencepost/redis:$suite" redis-server
	case $suite in
	trixie | sid) redis_like "fencepost/valkey:$suite" valkey-server ;;
	esac
	# The last image: if building is interrupted, the next run begins again.
	tag "fencepost/tests:$suite" 'CMD ["sh"]'
}

suites=("${@:-${FENCEPOST_IMAGE_SUITE:-bookworm}}")
[ "${suites[*]}" != all ] || suites=(bullseye bookworm trixie sid)

root=
trap '[ -z "$root" ] || rm -rf "$root" "$root.log"' EXIT
for suite in "${suites[@]}"; do
	# What the images are made from, without comments. If it changes, the images are built again.
	recipe=$({ sed '/^[[:space:]]*#/d' images.sh images/*.sh && echo "$suite"; } | sha256sum | cut -c1-16)
	if have "$suite" "$recipe"; then
		echo "the images of Debian $suite are there"
		continue
	fi
	if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
		echo >&2 "building images takes root and debootstrap (apt-get install debootstrap)"
		exit 1
	fi
	build "$suite" "$recipe"
done
