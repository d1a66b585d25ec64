#!/usr/bin/env bash
# Runs the whole comparison and makes of it docs/comparison.html, docs/comparison.json and
# the generated parts of docs/comparison.md. Nothing is changed where the run fails.
#
#   scripts/comparison.sh [arguments of fencepost compare]
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/ensure-services.sh demo >/dev/null
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

# The report names the commit, where there is one: not in a copy of the sources without git.
vcs=true
git rev-parse --verify --quiet HEAD >/dev/null 2>&1 || vcs=false
go build -C cmd/fencepost -buildvcs=$vcs -o "$made/fencepost" .
"$made/fencepost" compare --json --html "$made/comparison.html" "$@" >"$made/comparison.json"
go run -C bench ./compare/tables -report "$made/comparison.json" \
	-json "$PWD/docs/comparison.json" -markdown "$PWD/docs/comparison.md"
cp "$made/comparison.html" docs/comparison.html
