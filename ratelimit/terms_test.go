package ratelimit_test

import (
	"testing"

	terms "github.com/latchkey-go/latchkey/internal/waiting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// What a Limiter asks of the Locker ends with its call. The context of the lock
// does not carry it: the holder may call the Locker under that context.
func TestTermsEndWithTheCall(t *testing.T) {
	t.Parallel()
	l := ratelimit.AtMost(2, sqllock.NewMemory(), "export", ratelimit.WithLimit(newPlan(1).limit))
	ctx := as(t.Context(), "person")
	lock, err := l.Acquire(ctx, "ada")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	if got := terms.TermsOf(lock.Context()); got.Rank != 0 || got.Beyond != nil {
		t.Errorf("the context of the lock carries %+v", got)
	}
	if classOf(lock.Context()) != "person" {
		t.Error("the context of the lock lacks the values of the request's")
	}
}
