package idempotency_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Without locks nothing is done.
func TestFailsClosed(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	s := b.serve(b.once(locker{err: sqllock.ErrUnavailable}), b.pay(http.StatusCreated))
	r := mustAsk(t, s, demand{key: "k-1"})
	r.want(t, http.StatusServiceUnavailable)
	if r.Header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	b.wantEffects(0)
	b.wantLog("unavailable")
}

// A dry run admits all, locks or not: what is done once does not depend on them. But
// without a key there is nothing to be done once.
func TestDryRun(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	l := ratelimit.OneAtATime(locker{err: sqllock.ErrHeld}, "pay", ratelimit.WithDryRun())
	s := b.serve(b.onceBy(l), b.pay(http.StatusCreated))
	mustAsk(t, s, demand{}).want(t, http.StatusBadRequest)
	first := mustAsk(t, s, demand{key: "k-1"})
	first.want(t, http.StatusCreated)
	mustAsk(t, s, demand{key: "k-1"}).wantReplay(t, first)
	b.wantEffects(1)
}

// With all connections in use a request is not kept for ever.
func TestPoolInUse(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		b.db.SetMaxOpenConns(1)
		g := newGate(t)
		s := b.serve(b.once(b.locks()), g)
		first := asking(t, s, demand{key: "k-1"})
		receive(t, g.inside, "first request")
		mustAsk(t, s, demand{key: "k-2"}).want(t, http.StatusServiceUnavailable)
		b.wantLog("SetMaxOpenConns")
		close(g.leave)
		receive(t, first, "first answer").want(t, http.StatusOK)
		mustAsk(t, s, demand{key: "k-2"}).want(t, http.StatusOK)
	})
}

// waiters counts who waits for another one's transaction.
func (b *bank) waiters() int {
	b.t.Helper()
	return b.number(`SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'INSERT INTO latchkey_responses%'`)
}

// Admitted without a lock, a duplicate still waits for the first, and gets its
// answer: by the table's primary key.
func TestFailsOpen(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := newGate(t)
		away := ratelimit.OneAtATime(locker{err: sqllock.ErrUnavailable}, "pay", ratelimit.WithFailOpen())
		s := b.serve(b.onceBy(away), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			g.ServeHTTP(w, r)
		}))
		first := asking(t, s, demand{key: "k-1"})
		receive(t, g.inside, "first request")
		mustAsk(t, s, demand{key: "k-1"}).want(t, http.StatusConflict) // it has waited in vain
		second := asking(t, s, demand{key: "k-1"})
		lockertest.Eventually(t, "the duplicate waits", func() bool { return b.waiters() == 1 })
		close(g.leave)
		replay := receive(t, second, "second answer")
		replay.wantReplay(t, receive(t, first, "first answer"))
		b.wantEffects(1)
		if n := b.runs.Load(); n != 1 {
			t.Errorf("the handler ran %d times", n)
		}
	})
}

// If the first then rolls back, the duplicate that waited does it.
func TestFailsOpenAfterRollback(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := newGate(t)
		away := ratelimit.OneAtATime(locker{err: sqllock.ErrUnavailable}, "pay", ratelimit.WithFailOpen())
		s := b.serve(b.onceBy(away), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			if b.runs.Load() == 1 {
				g.inside <- r
				stay(g.test, g.leave)
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
		first := asking(t, s, demand{key: "k-1"})
		receive(t, g.inside, "first request")
		second := asking(t, s, demand{key: "k-1"})
		lockertest.Eventually(t, "the duplicate waits", func() bool { return b.waiters() == 1 })
		close(g.leave)
		receive(t, first, "first answer").want(t, http.StatusInternalServerError)
		receive(t, second, "second answer").want(t, http.StatusOK)
		b.wantEffects(1)
	})
}

// A 4xx is stored in the transaction whose effect is undone: nobody comes in between.
func TestRefusalNotOvertaken(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := newGate(t)
		away := ratelimit.OneAtATime(locker{err: sqllock.ErrUnavailable}, "pay", ratelimit.WithFailOpen())
		s := b.serve(b.onceBy(away), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			if b.runs.Load() == 1 {
				g.inside <- r
				stay(g.test, g.leave)
				w.WriteHeader(http.StatusPaymentRequired)
			}
		}))
		first := asking(t, s, demand{key: "k-1"})
		receive(t, g.inside, "first request")
		second := asking(t, s, demand{key: "k-1"})
		lockertest.Eventually(t, "the duplicate waits", func() bool { return b.waiters() == 1 })
		close(g.leave)
		one, two := receive(t, first, "first answer"), receive(t, second, "second answer")
		one.want(t, http.StatusPaymentRequired)
		two.wantReplay(t, one)
		b.wantEffects(0)
	})
}

// A lock that is lost while the handler runs lets another instance in, which waits
// for the transaction and does nothing twice.
func TestLockLost(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := newGate(t)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.record(r)
			g.inside <- r
			<-r.Context().Done()
			lock, _ := sqllock.FromContext(r.Context())
			if !errors.Is(lock.Err(), sqllock.ErrLost) {
				t.Errorf("the lock's error is %v, want ErrLost", lock.Err())
			}
			stay(g.test, g.leave)
			w.WriteHeader(http.StatusCreated)
		})
		first := asking(t, b.serve(b.once(b.locks()), h), demand{key: "k-1"})
		receive(t, g.inside, "first request")
		terminate(t, b.db)
		second := asking(t, b.serve(b.once(b.locks()), h), demand{key: "k-1"})
		lockertest.Eventually(t, "the duplicate waits", func() bool { return b.waiters() == 1 })
		close(g.leave)
		answer := receive(t, first, "first answer")
		answer.want(t, http.StatusCreated)
		receive(t, second, "second answer").wantReplay(t, answer)
		b.wantEffects(1)
	})
}

// The server goes while a handler runs and is back later: the client is told to
// come back, nothing is lost and nothing done twice.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			c := pgtest.New(t, pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
			b := newBank(t, driver, c.DSN(""))
			g := newGate(t)
			i := b.once(b.locks())
			gated := b.serve(i, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b.record(r)
				g.ServeHTTP(w, r)
			}))
			s := b.serve(i, b.pay(http.StatusOK))
			mustAsk(t, s, demand{key: "k-0"}).want(t, http.StatusOK)

			first := asking(t, gated, demand{key: "k-1"})
			receive(t, g.inside, "first request")
			if err := c.Kill(); err != nil {
				t.Fatal(err)
			}
			close(g.leave)
			receive(t, first, "answer without a server").want(t, http.StatusServiceUnavailable)
			for _, key := range []string{"k-0", "k-1"} {
				mustAsk(t, s, demand{key: key}).want(t, http.StatusServiceUnavailable)
			}
			b.wantLog("unavailable")
			if err := c.StartAgain(); err != nil {
				t.Fatal(err)
			}
			var r reply
			lockertest.Eventually(t, "the retry is served", func() bool {
				r = mustAsk(t, s, demand{key: "k-1"})
				return r.StatusCode == http.StatusOK
			})
			if mustAsk(t, s, demand{key: "k-0"}).Header.Get("Idempotency-Replayed") != "true" || r.Header.Get("Idempotency-Replayed") != "" {
				t.Error("want the first key's answer replayed, and the second's made")
			}
			b.wantEffects(2)
		})
	}
}

// Without its table, or with another one of its name, nothing is done and the log
// says what to change.
func TestSchemaMissing(t *testing.T) {
	t.Parallel()
	schema := strings.Join(idempotency.Schema(sqllock.PostgreSQL), "; ")
	for _, tt := range []struct{ name, setup, log string }{
		{"missing", "SELECT 1", "idempotency.Schema"},
		{"in another schema", "CREATE SCHEMA other; SET search_path = other; " + schema + "; RESET search_path", "search_path"},
		{"other columns", "CREATE TABLE latchkey_responses (key bytea PRIMARY KEY, print text)", "is not as idempotency.Schema"},
		{"no primary key", "CREATE TABLE latchkey_responses (key bytea, fingerprint bytea)", "is not as idempotency.Schema"},
		{"no rights", schema + "; CREATE ROLE poor_%s; GRANT INSERT ON ledger TO poor_%s; ALTER DATABASE %s SET role = poor_%s", "needs SELECT"},
	} {
		for _, driver := range pgtest.Drivers() {
			t.Run(tt.name+"/"+driver, func(t *testing.T) {
				t.Parallel()
				b := bankWithoutAnswers(t, driver, pgtest.Database(t))
				b.setUp(tt.setup)
				s := b.serve(b.once(sqllock.NewMemory()), b.pay(http.StatusCreated))
				mustAsk(t, s, demand{key: "k-1"}).want(t, http.StatusInternalServerError)
				b.wantLog(tt.log)
				b.wantLog("SQLSTATE")
				if b.runs.Load() != 0 {
					t.Error("the handler ran")
				}
			})
		}
	}
}

// The table is where the pool's search_path finds it.
func TestOtherSchema(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		b.setUp("CREATE SCHEMA other; ALTER TABLE latchkey_responses SET SCHEMA other; ALTER DATABASE %s SET search_path = public, other")
		s := b.serve(b.once(sqllock.NewMemory()), b.pay(http.StatusCreated))
		first := mustAsk(t, s, demand{key: "k-1"})
		first.want(t, http.StatusCreated)
		mustAsk(t, s, demand{key: "k-1"}).wantReplay(t, first)
		b.wantEffects(1)
	})
}
