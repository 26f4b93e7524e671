package httptesting

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// A Logbook is a log that a test reads. It is not for concurrent use, apart from
// what a slog.Logger allows.
type Logbook struct{ bytes.Buffer }

// Logger returns a Logger that writes to l, one line for each record.
func (l *Logbook) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(&l.Buffer, nil)) }

// Want fails the test unless lines have been logged since the last look, each
// with all of parts. None may hold ada, who is the user of all tests.
func (l *Logbook) Want(tb testing.TB, when string, lines int, parts ...string) {
	tb.Helper()
	got := l.String()
	l.Reset()
	if strings.Count(got, "\n") != lines {
		tb.Errorf("%s: logged %q, want %d lines", when, got, lines)
	}
	for line := range strings.Lines(got) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				tb.Errorf("%s: logged %q, want it to hold %q", when, line, part)
			}
		}
	}
	if strings.Contains(got, "ada") {
		tb.Errorf("%s: the log holds an id: %q", when, got)
	}
}
