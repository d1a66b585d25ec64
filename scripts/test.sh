#!/usr/bin/env bash
# Runs tests with the race detector on real servers, and prints how many tests used them, so that a build whose
# integration tests all skipped does not look green.
#
#   scripts/test.sh [go test arguments]       (default: all packages of the library, the benchmarks, the tool and otelfencepost)
#
# The four modules are tested as one workspace, so a package is named by its folder, in whichever module it is.
#
# At the end it names the ten slowest tests. FENCEPOST_TEST_BINARIES is how many test binaries run at the same time,
# each with servers of its own: 2 unless it is set. With 1 a test shares the machine only with the tests of its own
# package.
#
# At the end it also lists tests for which this machine lacks something. FENCEPOST_REQUIRE makes them fail instead.
#
# FENCEPOST_TEST_SUMMARY names a file that gets a line for each kind of servers that was used.
#
# With FENCEPOST_TEST_SUITE naming a Debian release, the servers are those of its image (scripts/images.sh), and the
# tests run inside it, without the race detector.
set -euo pipefail
cd "$(dirname "$0")/.."

report=$(mktemp)
workspace=$(mktemp -d)
trap 'rm -rf "$report" "$workspace"' EXIT
export FENCEPOST_TEST_REPORT=$report

# Made for this run only: a workspace that stays in the tree would hide what is missing in a module's own go.mod.
export GOWORK=$workspace/go.work
go work init . ./bench ./cmd/fencepost ./otelfencepost

# By default the race detector waits for a second when a process ends. A run has about 40 test binaries, and more child
# processes. Their goroutines have ended by then: goleak looks for those that have not.
export GORACE="atexit_sleep_ms=0 ${GORACE:-}"

how=(-race)
race= # how the programs around the tests are built: as the tests are, so that no package is compiled twice
if [ -n "${FENCEPOST_TEST_SUITE:-}" ]; then
	scripts/images.sh "$FENCEPOST_TEST_SUITE"
	# Without C, and so without the race detector, a binary runs with any C library.
	export CGO_ENABLED=0 FENCEPOST_SERVICES=local
	how=(-exec "$PWD/scripts/in-image.sh")
else
	! command -v "$(go env CC)" >/dev/null || race=-race
	way=$(GOFLAGS="$(go env GOFLAGS) $race" scripts/ensure-services.sh test)
	if [ -n "$way" ]; then
		# Pulled once for all test binaries, because a failing pull takes a long time.
		export FENCEPOST_SERVICES=$way
	fi
	# initdb runs once for all of the installed servers.
	mkdir "$workspace/clusters"
	export FENCEPOST_CLUSTERS=$workspace/clusters
fi
go build ${race:+"$race"} -o "$workspace/slowest" ./internal/testenv/slowest

# The longest come first, so that none of them runs alone at the end.
[ $# -gt 0 ] || set -- ./migrations . ./lease ./cmd/fencepost/internal/conformance ./internal/services ./fence \
	./internal/lint ./advisory ./internal/pgbatch ./bench/... ./cmd/fencepost/... ./otelfencepost/... ./...

verbose=
for arg in "$@"; do
	[ "$arg" != -v ] || verbose=-v
done

status=0
# go vet is a step of its own in .ci/run; here it would be repeated for each package that changed.
go test "${how[@]}" -vet=off -json -shuffle=on -count=1 -timeout=15m -p "${FENCEPOST_TEST_BINARIES:-2}" "$@" |
	"$workspace/slowest" $verbose || status=$?

echo
echo "tests that used PostgreSQL or Redis:"
awk -v summary="${FENCEPOST_TEST_SUMMARY:-/dev/null}" '
	$1 == "skipped" { next }
	{ printf "  %5d  %s\n", $2, $1; sum += $2; count = $2; $1 = $2 = ""; used[substr($0, 3)] += count }
	END {
		printf "  %5d  in all\n", sum
		for (line in used) {
			print "on " line
			print used[line] " tests on " line >>summary
		}
		exit sum > 0 ? 0 : 1
	}
' "$report" || {
	echo >&2 "no integration test ran"
	[ "$status" -ne 0 ] || status=1
}
awk -F '\t' '
	$1 == "skipped" { left[$3] = left[$3] "\n    " $2 }
	END {
		for (reason in left) {
			if (!said++) print "\ntests that were skipped, and why:"
			print "  " reason left[reason]
		}
	}
' "$report"
exit "$status"
