#!/usr/bin/env bash
# Sees that PostgreSQL and Redis can be found or started, and prints the way in which
# (url, docker or local). Where nothing serves, the machine is Debian or Ubuntu and
# the user is root, it says so and installs the packages. Where nothing serves after
# that it prints nothing, and leaves the error to the command that needs servers.
#
#   scripts/ensure-services.sh demo|test      (test also wants pgbouncer)
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "$*" >&2; }

can_install() { [ -e /etc/debian_version ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

probe() { go run ./internal/services/probe; }

say "looking for PostgreSQL and Redis (a first pull of images takes its time)"
packages=()
if ! way=$(probe 2>/dev/null); then
	packages+=(postgresql redis-server)
fi
if [ "${1:-demo}" = test ] && ! command -v pgbouncer >/dev/null && [ ! -x /usr/sbin/pgbouncer ]; then
	packages+=(pgbouncer)
fi

# A way that is forced and does not serve is not helped by packages, but for "local".
case "${FENCEPOST_SERVICES:-local}" in
local) ;;
*) [ -n "$way" ] || packages=() ;;
esac

if [ ${#packages[@]} -gt 0 ]; then
	if can_install; then
		say "not found here, installing with apt-get: ${packages[*]}"
		scripts/apt-install.sh "${packages[@]}"
		[ -n "$way" ] || way=$(probe) || true
	else
		say "not found here: ${packages[*]}"
	fi
fi

if [ -n "$way" ]; then
	echo "$way"
fi
