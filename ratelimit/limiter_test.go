package ratelimit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A key secret separates a Limiter from those without a secret, or with another
// one. The Limiter keeps a copy.
func TestWithKeySecret(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	secret := []byte("secret")
	option := ratelimit.WithKeySecret(secret)
	clear(secret)
	keyed := ratelimit.AtMost(2, locks, "export", option)
	must(t, keyed, "ada")

	must(t, ratelimit.OneAtATime(locks, "export"), "ada")
	must(t, ratelimit.OneAtATime(locks, "export", ratelimit.WithKeySecret([]byte("other"))), "ada")
	same := ratelimit.OneAtATime(locks, "export", ratelimit.WithKeySecret([]byte("secret")))
	if _, err := same.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
		t.Errorf("same secret: %v, want ErrBusy", err)
	}
	if got, want := keyed.Namespace(), sqllock.Namespace("export"); got != want {
		t.Errorf("Namespace %q, want %q", got, want)
	}
}

// Misuse panics when the server starts. The text says what is needed.
func TestMisusePanics(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	classes := func(of func(context.Context) string, classes ...ratelimit.Class) func() {
		return func() { ratelimit.AtMost(3, locks, "export", ratelimit.WithClasses(of, classes...)) }
	}
	a := ratelimit.Class{Name: "a"}
	tests := []struct {
		text   string // a part of it
		misuse func()
	}{
		{"OneAtATime needs a sqllock.Locker", func() { ratelimit.OneAtATime(nil, "export") }},
		{"AtMost needs a sqllock.Locker", func() { ratelimit.AtMost(2, nil, "export") }},
		{"namespace", func() { ratelimit.OneAtATime(locks, "") }},
		{"namespace", func() { ratelimit.OneAtATime(locks, "a:b") }},
		{"namespace", func() { ratelimit.OneAtATime(locks, "a#1") }},
		{"UTF-8", func() { ratelimit.OneAtATime(locks, "a\xff") }}, // promlatchkey would end the process at the first scrape
		{"UTF-8", func() { ratelimit.AtMost(2, locks, "a\xff") }},
		{"AtMost needs", func() { ratelimit.AtMost(0, locks, "export") }},
		{"AtMost needs", func() { ratelimit.AtMost(-1, locks, "export") }},
		{"WithWait needs", func() { ratelimit.WithWait(0, 1) }},
		{"WithWait needs", func() { ratelimit.WithWait(-time.Second, 1) }},
		{"WithWait needs", func() { ratelimit.WithWait(time.Second, 0) }},
		{"WithRetryAfter needs", func() { ratelimit.WithRetryAfter(nil) }},
		{"WithMaxHold needs", func() { ratelimit.WithMaxHold(0) }},
		{"WithMaxIDLen needs", func() { ratelimit.WithMaxIDLen(0) }},
		{"WithKeySecret needs", func() { ratelimit.WithKeySecret(nil) }},
		{"WithKeySecret needs", func() { ratelimit.WithKeySecret([]byte{}) }},
		{"WithObserver needs", func() { ratelimit.WithObserver(nil) }},
		{"WithLimit needs a func", func() { ratelimit.WithLimit(nil) }},
		{"a func that is not nil", classes(nil, a)},
		{"at least one Class", classes(classOf)},
		{"a Name in each", classes(classOf, a, ratelimit.Class{})},
		{"two classes of one Name", classes(classOf, a, a)},
		{"Reserved of zero or more", classes(classOf, ratelimit.Class{Name: "a", Reserved: -1})},
		{"reserves all places", classes(classOf, ratelimit.Class{Name: "a", Reserved: 1}, ratelimit.Class{Name: "b", Reserved: 2})},
		{"a Priority from", classes(classOf, ratelimit.Class{Name: "a", Priority: 1_000_001})},
		{"a Priority from", classes(classOf, ratelimit.Class{Name: "a", Priority: -1_000_001})},
		{"AcquireAll needs a *Limiter", func() { _, _ = ratelimit.AcquireAll(t.Context(), ratelimit.Level{}) }},
	}
	classes(classOf, ratelimit.Class{Name: "a", Priority: 1_000_000}, ratelimit.Class{Name: "b", Priority: -1_000_000})() // no misuse
	for _, tt := range tests {
		httptesting.WantPanic(t, "ratelimit", tt.text, tt.misuse)
	}
}
