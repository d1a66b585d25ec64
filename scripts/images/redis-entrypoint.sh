#!/bin/sh
# Entrypoint of the Redis image that `make images` builds. As in the official image,
# arguments that start with "-" or name a .conf file go to redis-server, anything
# else is run as it is, and protected mode is off unless asked for: a container's
# own loopback is of no use.
set -eu

case "${1:-redis-server}" in
-* | *.conf) set -- redis-server "$@" ;;
esac
if [ "${1:-redis-server}" != redis-server ]; then
	exec "$@"
fi
[ $# -eq 0 ] || shift

if [ "$(id -u)" = 0 ]; then
	chown redis:redis /data
	exec setpriv --reuid=redis --regid=redis --init-groups "$0" redis-server "$@"
fi

case "${1:-}" in
*.conf)
	config=$1
	shift
	exec redis-server "$config" --protected-mode no "$@"
	;;
esac
exec redis-server --protected-mode no "$@"
