#!/bin/sh
# Finds the libraries for PostgreSQL of Python and Node, with which the tests of
# this directory run the programs of docs/other-languages.md. It installs
# psycopg with apt-get as root, or with pip into the user's cache directory, and
# pg with npm into that directory. Without an interpreter or a network it says
# so and succeeds, and the tests are skipped. It prints nothing if everything is
# there.
set -eu

pg=8.23.1 # the version of pg

# os.UserCacheDir of Go.
case $(uname -s) in
Darwin) cache=$HOME/Library/Caches/latchkey ;;
*) cache=${XDG_CACHE_HOME:-$HOME/.cache}/latchkey ;;
esac

# Each of these is what program_test.go tries.
have_psycopg() {
	for program in python3 /usr/bin/python3; do
		PYTHONPATH=$cache/python-psycopg "$program" -c 'import psycopg' 2>/dev/null && return
	done
	return 1
}
have_pg() { NODE_PATH=$cache/node-pg/node_modules node -e 'require("pg")' 2>/dev/null; }

# The first attempt fails if the list of packages is missing or too old.
apt_install() {
	export DEBIAN_FRONTEND=noninteractive
	apt-get install -qq --no-install-recommends --no-remove "$@" >/dev/null 2>&1 </dev/null && return
	{ apt-get update -qq && apt-get install -qq --no-install-recommends --no-remove "$@"; } >/dev/null 2>&1 </dev/null
}

# Moves the directory that "$@" fills, given as its last argument, to $cache/$1.
into_cache() {
	name=$1
	shift
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/$name.XXXXXX")
	if "$@" "$work" >/dev/null 2>&1 </dev/null; then
		rm -rf "${cache:?}/$name" && mv "$work" "$cache/$name"
	else
		rm -rf "$work"
		return 1
	fi
}

if command -v python3 >/dev/null && ! have_psycopg; then
	echo "languages: installing psycopg" >&2
	if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then apt_install python3-psycopg || true; fi
	have_psycopg || into_cache python-psycopg python3 -m pip install -q --no-input --disable-pip-version-check \
		--retries 1 --timeout 15 'psycopg[binary]>=3.1' --target || true
fi
if command -v node >/dev/null && command -v npm >/dev/null && ! have_pg; then
	echo "languages: installing pg $pg" >&2
	into_cache node-pg npm install --silent --no-audit --no-fund --ignore-scripts --no-package-lock "pg@$pg" --prefix || true
fi
have_psycopg || echo "languages: no python3 with psycopg: the page's Python is not tested" >&2
have_pg || echo "languages: no node with pg: the page's JavaScript is not tested" >&2
