#!/usr/bin/env bash
# Plain psql under a fence. DATABASE_URL names the database; PSQL may name another psql.
set -euo pipefail
cd "$(dirname "$0")"

resource=examples:account:1

run() { # file, settings...
	local file=$1
	shift
	"${PSQL:-psql}" "$DATABASE_URL" --no-psqlrc --quiet --no-align --tuples-only --file "$file" \
		--set "resource=$resource" "$@"
}

claim() { # label; prints "token nonce"
	local claimed=
	while [ -z "$claimed" ]; do # another may have taken the number that we wanted
		claimed=$(run claim.sql --set "label=$1")
	done
	echo "$claimed"
}

deposit() { # token, nonce, amount
	run deposit.sql --set "token=$1" --set "nonce=$2" --set "amount=$3" >/dev/null
}

expect() { # SQLSTATE, what psql said
	case $2 in
	*"$1"*) ;;
	*)
		echo "$2"
		exit 1
		;;
	esac
}

PGOPTIONS='-c client_min_messages=warning' run schema.sql >/dev/null

first=$(claim first)
deposit $first 10
echo "first: deposited 10"

second=$(claim second)
deposit $second 5
echo "second: took over, deposited 5"

if problem=$(deposit $first 10 2>&1); then
	echo "first: NOT refused"
	exit 1
fi
# The SQLSTATE tells a stale claim from any other trouble.
expect ZF001 "$problem"
echo "first: refused as stale"

# Nor does it help to leave the claim out: the table has a protection.
if problem=$(run bare.sql 2>&1); then
	echo "without a claim: NOT refused"
	exit 1
fi
expect ZF004 "$problem"
echo "without a claim: refused"
