#!/bin/bash
#
# Databases for tests, in this box: a real server each, on a port of its own, with its data below /work/.sbx/testdb, so that
# it freezes and thaws with the box. Nobody outside the box reaches them, and they keep little safe: what a crash of the box
# loses of a test's data is no loss.

set -u
export LC_ALL=C.UTF-8 PATH="$PATH:/usr/sbin:/sbin"
readonly HOME_OF_ALL=/work/.sbx/testdb

usage() {
	cat <<'USAGE'
Usage: psbx-testdb postgres|redis [NAME]   start one, or one that is there again, and say how it is reached
       psbx-testdb list                    all of them: NAME|KIND|running or stopped|PORT
       psbx-testdb status NAME             one of them
       psbx-testdb stop NAME               stop it; its data stays
       psbx-testdb rm NAME                 stop it, and remove its data

NAME is that of its kind unless given: 1 to 40 lowercase letters, digits and dashes, a letter first.
How it is reached is in /work/.sbx/testdb/NAME.env, too: lines for `source`, or for a .env file.
USAGE
}

fail() {
	printf 'psbx-testdb: %s\n' "$1" >&2
	exit 1
}

# The user that servers run as: they refuse root.
as_user() {
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid user --regid user --init-groups -- "$@"
	else
		"$@"
	fi
}

postgres_folder() {
	local found folder
	found=$(command -v postgres) && [ -x "$(dirname "$(readlink -f "$found")")/initdb" ] &&
		dirname "$(readlink -f "$found")" && return
	for folder in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV); do
		if [ -x "$folder/postgres" ] && [ -x "$folder/initdb" ]; then
			printf '%s\n' "$folder"
			return
		fi
	done
	fail "there is no PostgreSQL in this box. Boxes have what is installed on the host: have \`apt-get install postgresql\` run there, \
then start a new box; or install it here, if this box may reach a package source."
}

redis_program() {
	local found link=$HOME_OF_ALL/.redis-server
	command -v redis-server || command -v valkey-server && return
	# Debian's redis-tools has the server under another name, and starts none on the host. It goes by the name it is called.
	found=$(command -v redis-check-rdb) && ln -sfn "$found" "$link" && printf '%s\n' "$link" && return
	fail "there is no Redis in this box. Boxes have what is installed on the host: have \`apt-get install redis-tools\` run there, \
then start a new box; or install it here, if this box may reach a package source."
}

is_open() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

free_port() {
	local port
	for ((port = $1; port < $1 + 1000; port++)); do
		is_open "$port" || { printf '%s\n' "$port"; return; }
	done
	fail "no port from $1 on is free"
}

field() { cat "$HOME_OF_ALL/$1/$2" 2>/dev/null; }

# Whether the server that its file of a process names runs, and is that server.
is_running() {
	local pid words
	pid=$(head -n 1 "$HOME_OF_ALL/$1/server.pid" 2>/dev/null)
	[ -n "$pid" ] && words=$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") || return 1
	# Postgres names its folder, Redis its address.
	case $words in
	*" $HOME_OF_ALL/$1/data "* | *"127.0.0.1:$(field "$1" port)"*) return 0 ;;
	*) return 1 ;;
	esac
}

show() {
	local name=$1 kind state=stopped
	kind=$(field "$name" kind) || fail "there is no database \`$name\`; \`psbx-testdb list\` shows those there are"
	if is_running "$name"; then state=running; fi
	printf '%s|%s|%s|%s\n' "$name" "$kind" "$state" "$(field "$name" port)"
}

start_postgres() {
	local at=$1 port=$2 bin
	bin=$(postgres_folder) || exit 1
	if [ ! -f "$at/data/PG_VERSION" ]; then
		rm -rf "$at/data.new"
		as_user "$bin/initdb" --pgdata "$at/data.new" --username postgres --auth trust --encoding UTF8 --no-locale --no-sync \
			>"$at/log" 2>&1 || fail "it could not be made: $(tail -n 1 "$at/log")"
		mv -T "$at/data.new" "$at/data"
	fi
	as_user setsid "$bin/postgres" -D "$at/data" -p "$port" -k "$at" -c listen_addresses=127.0.0.1 -c fsync=off \
		-c full_page_writes=off -c synchronous_commit=off -c external_pid_file="$at/server.pid" \
		</dev/null >>"$at/log" 2>&1 &
	cat >"$at.env.new" <<ENV
DATABASE_URL=postgresql://postgres@127.0.0.1:$port/postgres
PGHOST=127.0.0.1
PGPORT=$port
PGUSER=postgres
PGDATABASE=postgres
ENV
}

start_redis() {
	local at=$1 port=$2 program
	program=$(redis_program) || exit 1
	as_user mkdir -p "$at/data"
	as_user setsid "$program" --bind 127.0.0.1 --port "$port" --dir "$at/data" --pidfile "$at/server.pid" --save '' \
		--appendonly no </dev/null >>"$at/log" 2>&1 &
	cat >"$at.env.new" <<ENV
REDIS_URL=redis://127.0.0.1:$port/0
REDIS_HOST=127.0.0.1
REDIS_PORT=$port
ENV
}

# Whether it takes requests, and not only connections.
answers() {
	case $1 in
	postgres) [ "$(sed -n 8p "$HOME_OF_ALL/$2/data/postmaster.pid" 2>/dev/null | tr -d ' ')" = ready ] ;;
	redis) is_open "$3" ;;
	esac
}

start() {
	local kind=$1 name=$2 at=$HOME_OF_ALL/$2 port first before
	before=$(field "$name" kind) || before=$kind
	if [ "$before" != "$kind" ]; then fail "\`$name\` is a $before; give the $kind another name"; fi
	# A server that is missing is found out before anything is made.
	case $kind in
	postgres) first=5432 && postgres_folder >/dev/null || exit 1 ;;
	redis) first=6379 && redis_program >/dev/null || exit 1 ;;
	esac
	if ! is_running "$name"; then
		mkdir -p "$at"
		if [ "$(id -u)" = 0 ]; then chown user: "$at"; fi
		chmod 700 "$at"
		port=$(field "$name" port) || port=$(free_port "$first") || exit 1
		if is_open "$port"; then port=$(free_port "$first") || exit 1; fi
		printf '%s\n' "$port" >"$at/port"
		rm -f "$at/server.pid"
		"start_$kind" "$at" "$port"
		# Last, so that what has a kind has everything.
		mv -T "$at.env.new" "$at.env"
		printf '%s\n' "$kind" >"$at/kind"
	fi
	port=$(field "$name" port)
	local tries
	for ((tries = 0; tries < 600; tries++)); do
		if answers "$kind" "$name" "$port"; then
			cat "$at.env"
			printf '# envFile: %s\n' "$at.env"
			return
		fi
		if [ "$tries" -gt 20 ] && ! is_running "$name"; then fail "it ended: $(tail -n 1 "$at/log")"; fi
		sleep 0.1
	done
	fail "it did not answer within a minute; its log is $at/log"
}

stop() {
	local pid tries
	show "$1" >/dev/null || exit 1
	if ! is_running "$1"; then return 0; fi
	pid=$(head -n 1 "$HOME_OF_ALL/$1/server.pid")
	# Postgres: break connections off, but end cleanly.
	kill -INT "$pid" 2>/dev/null
	for ((tries = 0; tries < 300; tries++)); do
		is_running "$1" || return 0
		sleep 0.1
	done
	kill -KILL "$pid" 2>/dev/null
}

is_name() { [[ $1 =~ ^[a-z][a-z0-9-]{0,39}$ ]]; }

what=${1-} name=${2-}
case $what in
postgres | redis)
	name=${name:-$what}
	if [ $# -gt 2 ] || ! is_name "$name"; then usage >&2 && exit 2; fi
	mkdir -p "$HOME_OF_ALL" || exit 1
	exec 9>"$HOME_OF_ALL/.lock"
	flock 9
	# The servers must not keep the lock.
	(start "$what" "$name") 9>&-
	;;
list)
	for file in "$HOME_OF_ALL"/*.env; do
		if [ -f "$file" ]; then
			file=${file##*/}
			show "${file%.env}"
		fi
	done
	;;
status | stop | rm)
	if [ $# != 2 ] || ! is_name "$name"; then usage >&2 && exit 2; fi
	case $what in
	status) show "$name" ;;
	stop) stop "$name" ;;
	rm) (stop "$name") && rm -rf -- "${HOME_OF_ALL:?}/$name" "$HOME_OF_ALL/$name.env" ;;
	esac
	;;
-h | --help) usage ;;
*)
	usage >&2
	exit 2
	;;
esac
