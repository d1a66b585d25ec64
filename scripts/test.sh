#!/usr/bin/env bash
# Runs tests with the race detector on real servers, and says how many tests used
# them: a build whose integration tests all skipped must not look green.
#
#   scripts/test.sh [go test arguments]       (default: ./...)
set -euo pipefail
cd "$(dirname "$0")/.."

way=$(scripts/ensure-services.sh test)
if [ -n "$way" ]; then
	# Tried once for all test binaries: a pull that fails takes its time.
	export FENCEPOST_SERVICES=$way
fi

report=$(mktemp)
trap 'rm -f "$report"' EXIT
export FENCEPOST_TEST_REPORT=$report

# Two binaries side by side: each has servers of its own.
status=0
go test -race -shuffle=on -count=1 -timeout=10m -p 2 "${@:-./...}" || status=$?

echo
echo "tests that used PostgreSQL or Redis:"
awk '
	{ printf "  %5d  %s\n", $2, $1; sum += $2; $1 = $2 = ""; used[substr($0, 3)] = 1 }
	END {
		printf "  %5d  in all\n", sum
		for (line in used) print "on " line
		exit sum > 0 ? 0 : 1
	}
' "$report" || {
	echo >&2 "no integration test ran"
	[ "$status" -ne 0 ] || status=1
}
exit "$status"
