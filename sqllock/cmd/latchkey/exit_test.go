//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// Each command line goes through latchkey and through flock(1), if it is there.
// KEY is a key or a file. The exit codes are equal, and that of the table.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("exit 8\n"), 0o700); err != nil { // without "#!"
		t.Fatal(err)
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("exit 8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args string
		held bool // another process holds the lock
		want int
	}{
		{name: "success", args: "KEY true"},
		{name: "failure", args: "KEY false", want: 1},
		{name: "the command's code", args: "KEY sh -c exit_42", want: 42},
		{name: "the command's code is that of a conflict", args: "-n -E 9 KEY sh -c exit_1", want: 1},
		{name: "options of the command", args: "KEY sh -e -c exit_42", want: 42},
		{name: "ended by SIGTERM", args: "KEY sh -c kill_-TERM_$$", want: 143},
		{name: "ended by SIGKILL", args: "KEY sh -c kill_-KILL_$$", want: 137},
		{name: "no such command", args: "KEY latchkey-no-such-command", want: 69},
		{name: "no such file", args: "KEY /latchkey/no/such/file", want: 69},
		{name: "not executable", args: "KEY " + plain, want: 69},
		{name: "a directory", args: "KEY " + dir, want: 69},
		{name: "a script without a shell", args: "KEY " + script, want: 8},
		{name: "free, -n", args: "-n KEY true"},
		{name: "free, -w", args: "-w 60 KEY true"},
		{name: "held, -n", args: "-n KEY true", held: true, want: 1},
		{name: "held, --nonblock", args: "--nonblock KEY true", held: true, want: 1},
		{name: "held, -w", args: "-w 0.05 KEY true", held: true, want: 1},
		{name: "held, --timeout", args: "--timeout 0.05 KEY true", held: true, want: 1},
		{name: "held, --wait", args: "--wait 0.05 KEY true", held: true, want: 1},
		{name: "held, -w 0", args: "-w 0 KEY true", held: true, want: 1},
		{name: "held, -n -E", args: "-n -E 200 KEY true", held: true, want: 200},
		{name: "held, -n -E 0", args: "-n -E 0 KEY true", held: true},
		{name: "held, -w -E", args: "-w 0.05 -E 200 KEY true", held: true, want: 200},
		{name: "held, options in one word", args: "-nE 200 KEY true", held: true, want: 200},
		{name: "held, --conflict-exit-code", args: "-n --conflict-exit-code 200 KEY true", held: true, want: 200},
		{name: "shared", args: "-s KEY true"},
		{name: "held, shared", args: "-s -n KEY true", held: true, want: 1},
		{name: "exclusive", args: "-x KEY true"},
		{name: "no argument", args: "", want: 64},
		{name: "no command", args: "KEY", want: 64},
		{name: "unknown option", args: "--latchkey-unknown KEY true", want: 64},
		{name: "-E out of range", args: "-E 256 KEY true", want: 64},
		{name: "-E is no number", args: "-E x KEY true", want: 64},
		{name: "-w is no number", args: "-w x KEY true", want: 64},
		{name: "help", args: "--help"},
	}
	_, err := exec.LookPath("flock")
	if haveFlock := err == nil; !haveFlock {
		t.Log("util-linux's flock is not here: its side of the table is not compared")
	} else {
		t.Run("flock", func(t *testing.T) {
			t.Parallel()
			for _, tt := range tests {
				t.Run(tt.name, func(t *testing.T) {
					file := filepath.Join(t.TempDir(), "lock")
					if tt.held {
						hold := startProgram(t, nil, "flock", file, "sh", "-c", "echo held; cat")
						hold.wantLine("held")
					}
					startProgram(t, nil, "flock", words(tt.args, file)...).wantCode(tt.want)
				})
			}
		})
	}
	t.Run("latchkey", func(t *testing.T) {
		t.Parallel()
		address := pgtest.Database(t)
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				key := "test:" + tt.name
				if tt.held {
					hold := start(t, address, "run", key, "sh", "-c", "echo held; cat")
					hold.wantLine("held")
				}
				start(t, address, append([]string{"run", "--lock-delay", "0s"}, words(tt.args, key)...)...).wantCode(tt.want)
			})
		}
	})
}

// words splits a command line. "_" stands for a space within a word.
func words(line, key string) []string {
	args := strings.Fields(line)
	for i, a := range args {
		switch {
		case a == "KEY":
			args[i] = key
		case strings.Contains(a, "exit_"), strings.Contains(a, "kill_"):
			args[i] = strings.ReplaceAll(a, "_", " ")
		}
	}
	return args
}

// The exit codes that flock has no case for. Nothing that is printed holds the
// address of the database or an id.
func TestExitCodesOfLatchkey(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	sqlite := "sqlite:" + filepath.Join(t.TempDir(), secret+".db")
	tests := []struct {
		name    string
		address string
		args    []string
		want    int
	}{
		{"no database", "", []string{"run", "a:b", "true"}, 64},
		{"nothing listens", "postgres://u:" + secret + "@127.0.0.1:1/x?sslmode=disable", []string{"run", "a:b", "true"}, 66},
		{"nothing listens, MySQL", "mysql://u:" + secret + "@127.0.0.1:1/x", []string{"run", "a:b", "true"}, 66},
		{"no directory", "sqlite:/latchkey/no/such/" + secret + "/x.db", []string{"run", "a:b", "true"}, 66},
		{"a key without a namespace", address, []string{"run", secret, "true"}, 64},
		{"an empty namespace", address, []string{"run", ":" + secret, "true"}, 64},
		{"a bad namespace", address, []string{"run", "a#b:" + secret, "true"}, 64},
		{"slots of a number", address, []string{"run", "--at-most", "2", "17", "true"}, 64},
		{"readers in slots", address, []string{"run", "-s", "--at-most", "2", "a:b", "true"}, 64},
		{"no slot", address, []string{"run", "--at-most", "0", "a:b", "true"}, 64},
		{"readers on SQLite", sqlite, []string{"run", "-s", "a:b", "true"}, 78},
		{"a lease that is too short", address, []string{"run", "--lease", "1s", "a:b", "true"}, 78},
		{"an unknown command", address, []string{secret}, 64},
		{"no argument", address, nil, 64},
		{"a number", address, []string{"run", "-n", "17", "true"}, 0},
		{"a negative number", address, []string{"run", "-n", "-17", "true"}, 0},
		{"dashes before the command", address, []string{"run", "-n", "a:1", "--", "sh", "-c", "exit 42"}, 42},
		{"dashes for the command", address, []string{"run", "-n", "a:2", "--", "sh", "-c", "exit $#", "sh", "--"}, 1},
		{"two pairs of dashes", address, []string{"run", "-n", "--", "a:b", "--", "true"}, 0},
		{"an address on the command line", "", []string{"run", "--db", sqlite, "a:b", "true"}, 0},
		{"an address before the command", "", []string{"--db", sqlite, "run", "a:b", "true"}, 0},
		{"help", "postgres://" + secret, []string{"run", "--help"}, 0},
		{"a version", "", []string{"version"}, 64},
		{"version, as an option", "", []string{"--version"}, 0},
		{"a parameter that the server rejects", address + "&sslmod=require", []string{"run", "a:b", "true"}, 78},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, tt.address, tt.args...)
			p.wantCode(tt.want)
			if text := p.rest() + p.said(); strings.Contains(text, secret) && !strings.HasPrefix(tt.name, "an unknown") {
				t.Errorf("it printed the secret: %s", text)
			} else if tt.want >= 64 && p.said() == "" && len(tt.args) > 0 {
				t.Error("it says nothing")
			}
		})
	}
}
