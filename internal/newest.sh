#!/bin/sh
# Runs the tests of the packages in the arguments with the newest version of each
# required module. go.mod and go.sum stay as they are: they hold the oldest
# versions, with which all other targets run the tests.
set -eu

go=${GO:-go}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp go.mod "$dir/newest.mod"
cp go.sum "$dir/newest.sum"
"$go" get -modfile="$dir/newest.mod" -u -t ./...
"$go" vet -modfile="$dir/newest.mod" "$@"
"$go" test -modfile="$dir/newest.mod" "$@"
