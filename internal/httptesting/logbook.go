package httptesting

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// A Logbook is a log that a test reads. It is for concurrent use.
type Logbook struct {
	mu   sync.Mutex // protects text
	text strings.Builder
}

// Logger returns a Logger that writes to l, one line for each record.
func (l *Logbook) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *Logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns what was logged since the last look of Want.
func (l *Logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Want fails the test unless lines have been logged since the last look, each
// with all of parts. None may hold ada, who is the user of all tests.
func (l *Logbook) Want(tb testing.TB, when string, lines int, parts ...string) {
	tb.Helper()
	l.mu.Lock()
	got := l.text.String()
	l.text.Reset()
	l.mu.Unlock()
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
