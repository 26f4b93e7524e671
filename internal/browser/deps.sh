#!/bin/sh
# Finds Chromium, and axe-core in the user's cache directory, where the tests of
# this directory look for them. As root it installs Chromium and npm, with
# apt-get or dnf; with brew it does so for any other user. npm fetches axe-core,
# which is never part of this tree. It prints nothing if everything is there.
# Exit status 3 says that something is missing and cannot be installed.
set -eu

axe=4.14.1 # the version of axe-core; programs_test.go reads this line

# The same list is in programs_test.go.
have_chromium() {
	for program in chromium chromium-browser google-chrome-stable google-chrome; do
		command -v "$program" >/dev/null && return
	done
	[ -x "/Applications/Chromium.app/Contents/MacOS/Chromium" ] && return
	[ -x "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" ]
}

# os.UserCacheDir of Go.
case $(uname -s) in
Darwin) cache=$HOME/Library/Caches/latchkey ;;
*) cache=${XDG_CACHE_HOME:-$HOME/.cache}/latchkey ;;
esac
home=$cache/axe-core-$axe

missing=
have_chromium || missing=" chromium"
if [ ! -f "$home/axe.min.js" ] && ! command -v npm >/dev/null; then missing="$missing npm"; fi

# Runs a command that may take a while. Its output is shown only if it fails.
quietly() {
	output=$("$@" </dev/null 2>&1) || {
		printf '%s\n' "$output" >&2
		return 1
	}
}

# The first attempt fails if the list of packages is missing or too old.
apt_install() {
	export DEBIAN_FRONTEND=noninteractive
	quietly apt-get install -qq --no-install-recommends --no-remove "$@" 2>/dev/null && return
	quietly apt-get update -qq && quietly apt-get install -qq --no-install-recommends --no-remove "$@"
}

if [ -n "$missing" ]; then
	root=
	[ "$(id -u)" -ne 0 ] || root=yes
	can=
	if command -v apt-get >/dev/null; then
		names=$missing
		line="sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends$names'"
		can=$root
		# shellcheck disable=SC2086 # a list of words
		install() { apt_install $names; }
	elif command -v dnf >/dev/null; then
		names=$missing
		line="sudo dnf install -y$names"
		can=$root
		# shellcheck disable=SC2086
		install() { quietly dnf install -y -q $names; }
	elif command -v brew >/dev/null; then
		names=
		case $missing in *npm*) names=" node" ;; esac
		case $missing in *chromium*) names="$names google-chrome" ;; esac
		line="brew install$names"
		[ -n "$root" ] || can=yes # brew refuses to run as root
		# shellcheck disable=SC2086
		install() { quietly brew install -q $names; } # google-chrome is a cask
	else
		names=$missing
		line="your package manager"
	fi
	if [ -z "$can" ]; then
		echo "browser: not found:$missing; run: $line" >&2
		exit 3
	fi
	echo "browser: installing$names" >&2
	install || {
		echo "browser: the installation failed; to install by hand, run: $line" >&2
		exit 3
	}
	have_chromium || {
		echo "browser: the installed package has no Chromium in PATH" >&2
		exit 3
	}
fi

[ ! -f "$home/axe.min.js" ] || exit 0
echo "browser: fetching axe-core $axe" >&2
mkdir -p "$cache"
work=$(mktemp -d "$cache/axe-core.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# `npm install` would run scripts of the package. All of it is moved into place,
# or nothing.
(
	cd "$work" &&
		npm pack --silent "axe-core@$axe" >/dev/null &&
		tar -xzf ./*.tgz package/axe.min.js package/LICENSE &&
		rm -rf "$home" && mv package "$home"
) || {
	echo "browser: npm cannot fetch axe-core $axe" >&2
	exit 3
}
