#!/usr/bin/env bash
# Runs a command in the folder of each module of this repository, the root first, and stops at the first that fails.
#
#   scripts/modules.sh COMMAND [argument...]
set -euo pipefail
cd "$(dirname "$0")/.."

while read -r file; do
	folder=$(dirname "$file")
	(cd "$folder" && "$@") || {
		echo >&2 "$folder: $* failed"
		exit 1
	}
done < <(find . -name go.mod -not -path './.git/*' | sort)
