package sqllock

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// beginToken calls Token for l in a goroutine.
func beginToken(ctx context.Context, l *Lock) <-chan called {
	return begin(func() (*Lock, error) {
		_, err := l.token(ctx)
		return nil, err
	})
}

// A lock has one token, however many callers request it. The next holder has a
// greater one.
func TestTokenOnce(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		hook, resume := hold(t)
		server.session(0).tokenHook(hook)
		first, second := beginToken(t.Context(), lock), beginToken(t.Context(), lock)
		pending(t, "a token", first)
		resume()
		wantErr(t, "first", returned(t, "first", first), nil)
		wantErr(t, "second", returned(t, "second", second), nil)
		wantErr(t, "third", returned(t, "third", beginToken(t.Context(), lock)), nil)
		if n := server.session(0).tokens; n != 1 {
			t.Errorf("%d tokens were drawn for one lock, want 1", n)
		}
		token := lock.drawn()
		lock.noteToken(nil, &dialect.Token{Number: 1 << 40}) // another caller drew it at the same time
		if lock.drawn() != token {
			t.Error("a later token took the place of the first")
		}
		mustUnlock(t, lock)
		next := mustTry(t, s, ID(1))
		wantErr(t, "the next lock", returned(t, "the next lock", beginToken(t.Context(), next)), nil)
		if !lock.drawn().Before(*next.drawn()) {
			t.Errorf("tokens of one holder and the next: %v, %v", *lock.drawn(), *next.drawn())
		}
	})
}

// If the server does not respond to a request for a token, no call waits longer
// for the token than for a lock.
func TestTokenWithoutAnswer(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		hook, resume := hold(t)
		server.session(0).tokenHook(hook)
		ctx, cancel := context.WithCancel(t.Context())
		leaving, waiting := beginToken(ctx, lock), beginToken(t.Context(), lock)
		try := beginTry(t.Context(), s, ID(2))
		cancel()
		wantErr(t, "a caller whose context ends", returned(t, "it", leaving), context.Canceled)
		time.Sleep(answerTimeout)
		wantErr(t, "who waits for a token", returned(t, "it", waiting), ErrUnavailable)
		wantErr(t, "who waits for a lock", returned(t, "it", try), ErrUnavailable)
		resume()
		synctest.Wait()
		if err := lock.Err(); err != nil {
			t.Errorf("Err after the answer: %v", err)
		}
		mustUnlock(t, mustTry(t, s, ID(2)))
	})
}

func TestTokenOfLostLock(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		want   error
		lost   bool
	}{
		"connection gone":         {errGone, ErrLost, true},
		"another server answers":  {&dialect.Failure{Kind: dialect.NotExclusive, Reason: "another"}, ErrLost, true},
		"the statement fails":     {&dialect.Failure{Kind: dialect.Statement, Reason: "SQLSTATE 42501", State: "42501"}, nil, false},
		"no room in the server's": {&dialect.Failure{Kind: dialect.Full, Reason: "full", State: "53200"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
				lock := mustTry(t, s, ID(1))
				server.session(0).tokenHook(func() error { return test.answer })
				got := returned(t, "the token", beginToken(t.Context(), lock))
				if got.err == nil {
					t.Fatal("a token came of an error")
				}
				if test.want != nil {
					wantErr(t, "the token", got, test.want)
				}
				if lost := lock.Err() == ErrLost; lost != test.lost {
					t.Errorf("lost: %t, want %t", lost, test.lost)
				}
				server.session(0).tokenHook(nil)
				if !test.lost {
					wantErr(t, "asked again", returned(t, "it", beginToken(t.Context(), lock)), nil)
					mustUnlock(t, lock)
				}
			})
		})
	}
}

// If a lock is given back while its token is requested, Token returns an error.
// The token does not go to the next holder of the key.
func TestTokenOfReleasedLock(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		hook, resume := hold(t)
		server.session(0).tokenHook(hook)
		token := beginToken(t.Context(), lock)
		next := begin(func() (*Lock, error) { return s.Lock(t.Context(), ID(1)) })
		unlock := beginUnlock(lock) // hands over
		resume()
		wantErr(t, "Unlock", returned(t, "Unlock", unlock), nil)
		wantErr(t, "the token", returned(t, "the token", token), ErrReleased)
		holder := returned(t, "the next", next).lock
		if holder.drawn() != nil {
			t.Error("the next holder has a token that was drawn before it held")
		}
		mustUnlock(t, holder)
	})
}

// Requests for tokens count as heartbeats. Close ends the wait for a token.
func TestTokenAndClose(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		hook, resume := hold(t)
		server.session(0).tokenHook(hook)
		token := beginToken(t.Context(), lock)
		go func() { _ = s.Close() }()
		wantErr(t, "the token", returned(t, "it", token), ErrLost)
		resume()
	})
}

// The texts of two tokens of one system compare as the tokens do.
func TestTokenText(t *testing.T) {
	tokens := []dialect.Token{
		{System: -5, Epoch: 1, Number: 0},
		{System: -5, Epoch: 1, Number: 9},
		{System: -5, Epoch: 1, Number: 10},
		{System: -5, Epoch: 1, Number: 1 << 62},
		{System: -5, Epoch: 2, Number: 3},
		{System: -5, Epoch: 1<<32 - 1, Number: 1},
	}
	if !slices.IsSortedFunc(tokens, func(a, b dialect.Token) int {
		if a.Before(b) != (textOf(a) < textOf(b)) || b.Before(a) != (textOf(b) < textOf(a)) {
			t.Errorf("%s and %s compare otherwise than their tokens", textOf(a), textOf(b))
		}
		return strings.Compare(textOf(a), textOf(b))
	}) {
		t.Error("not sorted")
	}
}
