#!/usr/bin/env bash
# Runs a test binary inside the image fencepost/tests:$FENCEPOST_TEST_SUITE, for `go test -exec`. It sees the
# repository, itself, and no network but its own loopback: its servers are the programs of the image.
#
#   scripts/in-image.sh BINARY [flag...]
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
folder=$(dirname "$1")

passed=()
for name in $(compgen -e | grep -E '^(FENCEPOST_|CI$)'); do
	passed+=(--env "$name")
done
if [ -n "${FENCEPOST_TEST_REPORT:-}" ]; then
	passed+=(--volume "$FENCEPOST_TEST_REPORT:$FENCEPOST_TEST_REPORT")
fi
# Docker gives 64 MB of /dev/shm, where PostgreSQL's data goes if there is a gigabyte. The init process reaps the
# processes that tests leave behind, as that of a machine does.
exec docker run --rm --init --network none --shm-size 4g "${passed[@]}" \
	--volume "$top:$top:ro" --volume "$folder:$folder:ro" --workdir "$PWD" \
	"fencepost/tests:$FENCEPOST_TEST_SUITE" "$@"
