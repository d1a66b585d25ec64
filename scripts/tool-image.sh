#!/usr/bin/env bash
# Builds the image of the command-line tool from what this machine has: the program, and the certificates of public
# authorities.
#
#   scripts/tool-image.sh [TAG]       (default: fencepost:local)
#
# FENCEPOST_CERTIFICATES is the file with the certificates, if it is not where Debian, Fedora and Alpine have it.
set -euo pipefail
cd "$(dirname "$0")/.."
tag=${1:-fencepost:local}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for file in "${FENCEPOST_CERTIFICATES:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
	[ ! -r "$file" ] || { cp "$file" "$folder/ca-certificates.crt" && break; }
done
if [ ! -e "$folder/ca-certificates.crt" ]; then
	echo >&2 "tool-image: no certificates were found: name a file in FENCEPOST_CERTIFICATES, or install ca-certificates"
	exit 1
fi
echo 'fencepost:x:65532:65532::/:/fencepost' >"$folder/passwd"
scripts/build.sh "$folder/fencepost"
docker build --quiet --tag "$tag" --file Dockerfile "$folder"
