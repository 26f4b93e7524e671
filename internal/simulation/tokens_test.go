package simulation

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// beginToken calls Token for l in a goroutine.
func beginToken(ctx context.Context, l *sqllock.Lock) <-chan called {
	return begin(func() (sqllock.Locks, error) { return nil, second(l.Token(ctx)) })
}

func mustToken(t *testing.T, l *sqllock.Lock) string {
	t.Helper()
	token, err := l.Token(background)
	wantErr(t, "Token", err, nil)
	return token
}

// A lock has one token, however many callers request it. The next holder has a
// greater one.
func TestTokenOnce(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))
		c := st.conn(0)
		hook, resume := hold(t)
		c.tokenHook(hook)
		first, second := beginToken(t.Context(), lock), beginToken(t.Context(), lock)
		pending(t, "a token", first)
		c.tokenHook(nil)
		resume()
		wantReturned(t, "first", first, nil)
		wantReturned(t, "second", second, nil)
		token := mustToken(t, lock)
		if mustToken(t, lock) != token || c.drawn() > 2 { // the second caller came while the first statement was under way
			t.Errorf("%d tokens were drawn for one lock", c.drawn())
		}
		mustUnlock(t, lock)
		if next := mustToken(t, mustTry(t, s, sqllock.ID(1))); next <= token {
			t.Errorf("tokens of one holder and the next: %s, %s", token, next)
		}
	})
}

// A context that has ended draws no token.
func TestTokenOfEndedContext(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 { // a response and the end of ctx may come at once
			wantErr(t, "Token", second(lock.Token(ctx)), context.Canceled)
		}
		synctest.Wait()
		if n := st.conn(0).drawn(); n != 0 {
			t.Errorf("%d tokens were drawn", n)
		}
	})
}

// If the server does not respond to a request for a token, no call waits longer
// for the token than for a lock.
func TestTokenWithoutResponse(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))
		hook, resume := hold(t)
		st.conn(0).tokenHook(hook)
		ctx, cancel := context.WithCancel(t.Context())
		leaving, waiting := beginToken(ctx, lock), beginToken(t.Context(), lock)
		try := beginTry(t.Context(), s, sqllock.ID(2))
		cancel()
		wantReturned(t, "a caller whose context ends", leaving, context.Canceled)
		time.Sleep(responseBound)
		wantReturned(t, "the token", waiting, sqllock.ErrUnavailable)
		wantReturned(t, "TryLock", try, sqllock.ErrUnavailable)
		resume()
		synctest.Wait()
		wantErr(t, "Err after the response", lock.Err(), nil)
		mustUnlock(t, mustTry(t, s, sqllock.ID(2)))
	})
}

// A statement for a token that fails costs the lock only if the session is lost.
// Otherwise a heartbeat follows, which reports whether it is.
func TestTokenOfLostLock(t *testing.T) {
	for name, test := range map[string]struct {
		failure error
		lost    bool
	}{
		"connection gone":         {errGone, true},
		"another server responds": {&dialect.Failure{Kind: dialect.NotExclusive, Reason: "another"}, true},
		"the statement fails":     {&dialect.Failure{Kind: dialect.Statement, Reason: "SQLSTATE 42501", State: "42501"}, false},
		"no room in the server's": {&dialect.Failure{Kind: dialect.Full, Reason: "full", State: "53200"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
				lock := mustTry(t, s, sqllock.ID(1))
				st.conn(0).tokenHook(fail(test.failure))
				before := st.conn(0).statements()
				_, err := lock.Token(background)
				if err == nil {
					t.Fatal("a token came of an error")
				}
				if test.lost {
					wantErr(t, "the token", err, sqllock.ErrLost)
					wantErr(t, "Err", lock.Err(), sqllock.ErrLost)
					return
				}
				synctest.Wait()
				wantErr(t, "Err", lock.Err(), nil)
				if n := st.conn(0).statements() - before; n != 1 {
					t.Errorf("%d batches after the rejection, want a heartbeat", n)
				}
				st.conn(0).tokenHook(nil)
				mustToken(t, lock)
				mustUnlock(t, lock)
			})
		})
	}
}

// If a lock is given back while its token is requested, Token returns an error.
// The token does not go to the next holder of the key.
func TestTokenOfReleasedLock(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock, blocker := mustTry(t, s, sqllock.ID(1)), mustTry(t, s, sqllock.ID(2))
		hook, resume := hold(t)
		st.conn(0).tokenHook(hook)
		busy := beginToken(t.Context(), blocker)
		token := beginToken(t.Context(), lock) // behind it
		next := beginLock(t.Context(), s, sqllock.ID(1))
		unlock := beginUnlock(lock) // hands over
		st.conn(0).tokenHook(nil)
		resume()
		wantReturned(t, "Unlock", unlock, nil)
		wantReturned(t, "the token of the blocker", busy, nil)
		if got := returned(t, "the token", token).err; got != sqllock.ErrReleased && got != sqllock.ErrLost {
			t.Errorf("the token of a lock that was given back: %v", got)
		}
		before := st.conn(0).drawn()
		mustToken(t, granted(t, "Lock", next))
		if n := st.conn(0).drawn() - before; n != 1 {
			t.Errorf("%d tokens were drawn for the next holder, want another one", n)
		}
	})
}

// Close ends the wait for a token.
func TestTokenAndClose(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))
		hook, _ := hold(t)
		st.conn(0).tokenHook(hook)
		token := beginToken(t.Context(), lock)
		go func() { _ = s.Close() }()
		wantReturned(t, "the token", token, sqllock.ErrLost)
	})
}

// A drawing is a session that draws tokens from a list.
type drawing struct {
	*conn
	tokens *[]dialect.Token
}

// Token implements dialect.Session.
func (d drawing) Token() (dialect.Token, error) {
	token := (*d.tokens)[0]
	*d.tokens = (*d.tokens)[1:]
	return token, d.say()
}

// The texts of tokens of one system compare as the tokens do.
func TestTokenText(t *testing.T) {
	tokens := []dialect.Token{
		{System: -5, Epoch: 1, Number: 0},
		{System: -5, Epoch: 1, Number: 9},
		{System: -5, Epoch: 1, Number: 10},
		{System: -5, Epoch: 1, Number: 1 << 62},
		{System: -5, Epoch: 2, Number: 3},
		{System: -5, Epoch: 1<<32 - 1, Number: 1},
	}
	script{session: func(_ *stage, c *conn) dialect.Session { return drawing{c, &tokens} }}.run(t, func(t *testing.T, s *sqllock.Session, _ *stage) {
		var texts []string
		for i := range int64(len(tokens)) {
			texts = append(texts, mustToken(t, mustTry(t, s, sqllock.ID(i))))
		}
		if !slices.IsSorted(texts) || len(slices.Compact(texts)) != len(texts) {
			t.Errorf("not sorted: %v", texts)
		}
	})
}
