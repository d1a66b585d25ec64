#!/usr/bin/env bash
# Installs Debian packages without letting them start servers.
#
#   scripts/apt-install.sh PACKAGE...
set -euo pipefail

guard=/usr/sbin/policy-rc.d
kept=
if [ -e "$guard" ] || [ -L "$guard" ]; then
	kept=$(mktemp -u "$guard.fencepost.XXXXXX")
	mv "$guard" "$kept"
fi
restore() {
	rm -f "$guard"
	[ -z "$kept" ] || mv "$kept" "$guard"
}
trap restore EXIT
trap 'exit 130' INT TERM

# Packages ask this program before they start a service; 101 is "no".
printf '#!/bin/sh\nexit 101\n' >"$guard"
chmod 755 "$guard"

log=$(mktemp)
if ! {
	apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
} </dev/null >"$log" 2>&1; then
	tail -n 40 "$log" >&2
	rm -f "$log"
	echo >&2 "apt-get could not install: $*"
	exit 1
fi
rm -f "$log"
