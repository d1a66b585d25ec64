#!/usr/bin/env bash
# Builds the command-line tool as a static binary that knows its version, commit and date, if the sources come with
# git's history. The date is the commit's, so the same sources give the same binary.
#
#   scripts/build.sh FILE
set -euo pipefail
file=$(realpath --canonicalize-missing "$1")
cd "$(dirname "$0")/.."
CGO_ENABLED=0 go build -C cmd/fencepost -trimpath -buildvcs=auto -o "$file" .
