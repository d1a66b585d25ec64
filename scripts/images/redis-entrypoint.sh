#!/bin/sh
# Entrypoint of the Redis and Valkey images that `make images` builds. As in the official
# images, arguments that start with "-" or name a .conf file go to redis-server (in the image
# of Valkey: valkey-server), anything else is run as it is, and protected mode is off unless
# asked for: a container's own loopback is of no use.
set -eu

server=${FENCEPOST_REDIS_PROGRAM:-redis-server}
case "${1:-}" in
redis-server | valkey-server) shift ;;
"" | -* | *.conf) ;;
*) exec "$@" ;;
esac

if [ "$(id -u)" = 0 ]; then
	user=${server%-server}
	chown "$user:$user" /data
	exec setpriv --reuid="$user" --regid="$user" --init-groups "$0" "$server" "$@"
fi

case "${1:-}" in
*.conf)
	config=$1
	shift
	exec "$server" "$config" --protected-mode no "$@"
	;;
esac
exec "$server" --protected-mode no "$@"
