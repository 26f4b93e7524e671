package ratelimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

var ids = []struct {
	name, id string
	why      string // part of the error's text; "" for a good id
}{
	{"plain", "ada", ""},
	{"other scripts", "用户一", ""},
	{"colons and hashes", "a:b#1", ""},
	{"space", " ", ""},
	{"new line", "a\nb", ""},
	{"replacement character", "\uFFFD", ""},
	{"longest", strings.Repeat("a", 1024), ""},
	{"empty", "", "empty"},
	{"too long", strings.Repeat("a", 1025), "1024 bytes"},
	{"too many bytes", strings.Repeat("é", 513), "1024 bytes"},
	{"Latin-1", "caf\xe9", "UTF-8"},
	{"surrogate", "\xed\xa0\x80", "UTF-8"},
	{"overlong", "\xc0\x80", "UTF-8"},
	{"NUL", "ada\x00", "NUL"},
	{"only NUL", "\x00", "NUL"},
}

// A bad id never reaches the database.
func TestIDs(t *testing.T) {
	t.Parallel()
	for _, tt := range ids {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			asked := false
			locks := fakeLocker{tryLock: func(context.Context, sqllock.Key) (*sqllock.Lock, error) {
				asked = true
				return nil, sqllock.ErrHeld
			}}
			_, err := ratelimit.OneAtATime(locks, "export", ratelimit.WithFailOpen()).Acquire(t.Context(), tt.id)
			switch {
			case tt.why == "" && (!asked || !errors.Is(err, ratelimit.ErrBusy)):
				t.Errorf("asked %v, %v; want the locker's answer", asked, err)
			case tt.why != "" && (asked || !errors.Is(err, ratelimit.ErrBadID)):
				t.Errorf("asked %v, %v; want ErrBadID without asking", asked, err)
			case !strings.Contains(err.Error(), tt.why):
				t.Errorf("%q does not say %q", err, tt.why)
			case len(tt.id) > 2 && strings.Contains(err.Error(), tt.id[:3]):
				t.Errorf("%q holds the id", err)
			}
		})
	}
}

func FuzzID(f *testing.F) {
	for _, tt := range ids {
		f.Add(tt.id)
	}
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	f.Fuzz(func(t *testing.T, id string) {
		lock, err := l.Acquire(t.Context(), id)
		good := id != "" && len(id) <= 1024 && utf8.ValidString(id) && !strings.Contains(id, "\x00")
		if good != (err == nil) {
			t.Fatalf("good %v, but %v", good, err)
		}
		if err == nil {
			unlock(t, lock)
			return
		}
		if !errors.Is(err, ratelimit.ErrBadID) {
			t.Errorf("got %v, want ErrBadID", err)
		}
		if len(id) > 12 && strings.Contains(err.Error(), id) {
			t.Errorf("%q holds the id", err)
		}
	})
}
