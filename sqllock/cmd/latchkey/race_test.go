//go:build linux

package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// racesVariable is the number of rounds of TestRaces, 24 without it.
const racesVariable = "LATCHKEY_TEST_RACES"

// Two hosts start a command under one key at the same moment, again and again.
// Both run, and never at once. In every third round the host that comes first
// is killed while its command runs, and in another third its connection is cut.
func TestRaces(t *testing.T) {
	t.Parallel()
	rounds := 24
	if text := os.Getenv(racesVariable); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	address := pgtest.Database(t)
	f := newFleet(t, address)
	begun, ended := 0, 0
	for round := range rounds {
		// Without faults nothing needs the delay.
		f.opts = []string{"--lock-delay", "0s"}
		switch round % 3 {
		case 0:
			first, second := f.run("once", f.file), f.run("once", f.file)
			first.wantCode(0)
			second.wantCode(0)
			begun, ended = begun+2, ended+2
		case 1:
			first, _ := f.hold("stubborn")
			second := f.run("once", f.file)
			f.signal(first.cmd.Process.Pid, syscall.SIGKILL)
			second.wantCode(0)
			begun, ended = begun+2, ended+1
		case 2:
			f.opts = nil
			first, _ := f.hold("stubborn")
			second := f.run("once", f.file)
			cut(t, address)
			first.wantLost()
			second.wantCode(0)
			begun, ended = begun+2, ended+1
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	got := readWork(t, f.file)
	if strings.Contains(got, "overlap") || strings.Count(got, "begin") != begun || strings.Count(got, "end") != ended {
		t.Errorf("%d commands began, %d ended and %d overlapped, want %d, %d and 0",
			strings.Count(got, "begin"), strings.Count(got, "end"), strings.Count(got, "overlap"), begun, ended)
	}
	t.Logf("%d rounds: %d commands began, %d were ended by a fault, none at the time of another", rounds, begun, begun-ended)
}
