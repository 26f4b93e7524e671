#!/bin/sh
# Finds the programs that the tests need, where the tests look for them:
# PostgreSQL, PgBouncer, MariaDB, a C compiler (for a server whose clock steps)
# and, for internal/bench, redis-server. As root it installs what is missing, with
# apt-get, dnf or brew. It prints nothing if everything is there.
#
# HAProxy, Pgpool-II and PGlite are optional: without them it says so and
# succeeds, and their tests are skipped. It installs the first two with apt-get
# alone, and PGlite with npm into the user's cache directory.
#
#   deps.sh        everything, for the tests
#   deps.sh bench  PostgreSQL's programs and redis-server, for internal/bench
#
# Exit status 3 says that something is missing and cannot be installed.
set -eu

oldest=14 # the oldest major version of PostgreSQL that is new enough

# Succeeds if directory $1 has all programs of a PostgreSQL that is new enough.
complete() {
	for program in postgres initdb pg_basebackup; do
		[ -x "$1/$program" ] || return 1
	done
	version=$("$1/postgres" --version) || return 1
	version=${version#*PostgreSQL\) } # postgres (PostgreSQL) 17.2 (Debian …)
	version=${version%%[!0-9]*}
	[ "${version:-0}" -ge "$oldest" ]
}

have_postgres() {
	# A link in PATH leads to the directory that has the other programs too.
	found=$(command -v postgres || true)
	if [ -n "$found" ]; then
		real=$(readlink -f "$found" 2>/dev/null || echo "$found")
		complete "${real%/*}" && return
	fi
	# The same list is in programs.go; a test compares the two.
	for dir in \
		/usr/lib/postgresql/*/bin \
		/usr/pgsql-*/bin \
		/opt/homebrew/opt/postgresql@*/bin \
		/usr/local/opt/postgresql*/bin \
		/Applications/Postgres.app/Contents/Versions/*/bin; do
		complete "$dir" && return
	done
	return 1
}

have_pgbouncer() {
	for dir in /usr/sbin /opt/homebrew/bin /usr/local/bin; do
		[ -x "$dir/pgbouncer" ] && return
	done
	command -v pgbouncer >/dev/null
}

# Only Linux can preload the clock that the compiler builds.
have_cc() {
	[ "$(uname -s 2>/dev/null)" = Darwin ] || command -v cc >/dev/null
}

# The same list is in internal/bench/servers.go.
have_redis() {
	for dir in /usr/bin /opt/homebrew/bin /usr/local/bin; do
		[ -x "$dir/redis-server" ] && return
	done
	command -v redis-server >/dev/null
}

# The same list is in front.go; a test compares the two.
have_front() {
	for dir in /usr/sbin /opt/homebrew/bin /usr/local/bin; do
		[ -x "$dir/$1" ] && return
	done
	command -v "$1" >/dev/null
}

have_mariadb() {
	# The same list is in internal/mariadbtest/programs.go; a test compares the two.
	for program in mariadbd mariadb-install-db mariadb; do
		found=$(command -v "$program" || true)
		for dir in /usr/sbin /usr/bin /usr/libexec /opt/homebrew/opt/mariadb/bin /usr/local/opt/mariadb/bin; do
			if [ -x "$dir/$program" ]; then found=$dir; fi
		done
		[ -n "$found" ] || return 1
	done
}

purpose=${1-tests}
case $purpose in
tests | bench) ;;
*)
	echo "deps: unknown argument $purpose; use bench for the benchmarks, or no argument for the tests" >&2
	exit 2
	;;
esac

missing=
have_postgres || missing=" postgres"
if [ "$purpose" = tests ] && ! have_pgbouncer; then missing="$missing pgbouncer"; fi
have_redis || missing="$missing redis"
if [ "$purpose" = tests ] && ! have_cc; then missing="$missing cc"; fi
if [ "$purpose" = tests ] && ! have_mariadb; then missing="$missing mariadb"; fi

if [ "$purpose" = tests ] && [ -n "${LATCHKEY_TEST_POSTGRES-}" ]; then
	echo "deps: LATCHKEY_TEST_POSTGRES is not enough for the tests: some tests kill servers, and need$missing on this machine." >&2
fi

# packages POSTGRESQL REDIS CC MARIADB: prints what a package manager calls the
# missing programs.
packages() {
	for each in $missing; do
		case $each in
		postgres) printf ' %s' "$1" ;;
		redis) printf ' %s' "$2" ;;
		cc) printf ' %s' "${3-cc}" ;;
		mariadb) printf ' %s' "${4-mariadb}" ;;
		*) printf ' %s' "$each" ;;
		esac
	done
}

# Runs a command that may take a while. Its output is shown only if it fails.
quietly() {
	output=$("$@" </dev/null 2>&1) || {
		printf '%s\n' "$output" >&2
		return 1
	}
}

# The first attempt fails if the list of packages is missing or too old.
# --no-remove keeps apt-get from removing packages: it would remove MySQL for
# MariaDB.
apt_install() {
	quietly apt-get install -qq --no-install-recommends --no-remove "$@" 2>/dev/null && return
	quietly apt-get update -qq && quietly apt-get install -qq --no-install-recommends --no-remove "$@"
}

# Keeps packages from starting servers until the end of this script.
start_nothing() {
	policy=/usr/sbin/policy-rc.d
	made= saved=
	trap 'rm -f $made; if [ -n "$saved" ]; then mv -f "$saved" "$conf"; fi' EXIT
	trap 'exit 1' HUP INT TERM
	if [ ! -e "$policy" ]; then
		made=$policy
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
	fi
	export DEBIAN_FRONTEND=noninteractive
}

pglite=0.5.16        # the version of PGlite
pglite_socket=0.2.17 # and of its socket server; pglite.go has both

# Fetches PGlite with npm, into os.UserCacheDir of Go. All of it is moved into
# place, or nothing.
install_pglite() {
	case $(uname -s) in
	Darwin) cache=$HOME/Library/Caches/latchkey ;;
	*) cache=${XDG_CACHE_HOME:-$HOME/.cache}/latchkey ;;
	esac
	home=$cache/pglite-$pglite-$pglite_socket
	[ -d "$home" ] && return
	if command -v node >/dev/null && command -v npm >/dev/null; then
		echo "deps: fetching PGlite $pglite" >&2
		mkdir -p "$cache"
		work=$(mktemp -d "$cache/pglite.XXXXXX")
		if npm install --silent --no-audit --no-fund --ignore-scripts --no-package-lock --legacy-peer-deps --prefix "$work" \
			"@electric-sql/pglite@$pglite" "@electric-sql/pglite-socket@$pglite_socket" >/dev/null 2>&1 </dev/null; then
			mv "$work" "$home"
		else
			rm -rf "$work"
		fi
	fi
	[ -d "$home" ] || echo "deps: no PGlite: its tests are skipped" >&2
}

# Installs what only some tests need, if that is possible. A package's name is
# that of its service, too.
install_optional() {
	for program in haproxy pgpool; do
		have_front "$program" && continue
		case $program in pgpool) package=pgpool2 ;; *) package=$program ;; esac
		if [ -n "$root" ] && command -v apt-get >/dev/null; then
			echo "deps: installing $package" >&2
			start_nothing
			apt_install "$package" 2>/dev/null || true
			if command -v systemctl >/dev/null; then systemctl disable -q "$package" 2>/dev/null || true; fi
		fi
		have_front "$program" || echo "deps: no $program: its tests are skipped" >&2
	done
	install_pglite
}

# Installs with apt-get, and makes sure that no server starts, now or later.
# Debian's packages would start PgBouncer, Redis, MariaDB and a PostgreSQL
# cluster "main". The changes in /etc and /usr/sbin for that are undone at the
# end.
install_with_apt() {
	start_nothing
	conf=/etc/postgresql-common/createcluster.conf
	case $missing in
	*postgres*)
		apt_install postgresql-common || return
		cp -p "$conf" "$conf.latchkey" || return
		saved=$conf.latchkey
		echo "create_main_cluster = false" >>"$conf"
		;;
	esac
	# shellcheck disable=SC2046 # a list of words
	apt_install $(packages postgresql redis-server "gcc libc6-dev" mariadb-server) || return
	if command -v systemctl >/dev/null; then
		case $missing in *pgbouncer*) systemctl disable -q pgbouncer 2>/dev/null || true ;; esac
		case $missing in *redis*) systemctl disable -q redis-server 2>/dev/null || true ;; esac
		case $missing in *mariadb*) systemctl disable -q mariadb 2>/dev/null || true ;; esac
	fi
}

root=
[ "$(id -u)" -ne 0 ] || root=yes

if [ -z "$missing" ]; then
	[ "$purpose" = bench ] || install_optional
	exit 0
fi

if command -v apt-get >/dev/null; then
	names=$(packages postgresql redis-server "gcc libc6-dev" mariadb-server)
	line="sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends$names'"
	can=$root
	install() { install_with_apt; }
elif command -v dnf >/dev/null; then
	names=$(packages postgresql-server redis gcc mariadb-server)
	line="sudo dnf install -y$names"
	can=$root
	# shellcheck disable=SC2086
	install() { quietly dnf install -y -q $names; } # dnf starts nothing
elif command -v brew >/dev/null; then
	names=$(packages postgresql@17 redis)
	line="brew install$names"
	[ -n "$root" ] || can=yes # brew refuses to run as root
	# shellcheck disable=SC2086
	install() { quietly brew install -q $names; } # brew starts nothing
else
	names=$missing
	line="your package manager (PostgreSQL $oldest or newer)"
	can=
fi

if [ -z "${can-}" ]; then
	echo "deps: not found:$names; run: $line" >&2
	exit 3
fi
echo "deps: installing$names" >&2
install || {
	echo "deps: the installation failed; to install by hand, run: $line" >&2
	exit 3
}
have_postgres || {
	echo "deps: the PostgreSQL of this system is older than $oldest; for a newer one see https://www.postgresql.org/download/" >&2
	exit 3
}
if [ "$purpose" = tests ] && ! have_mariadb; then
	echo "deps: the installed packages lack some of MariaDB's programs" >&2
	exit 3
fi
have_redis || {
	echo "deps: the installed packages have no redis-server" >&2
	exit 3
}
[ "$purpose" = bench ] || install_optional
