package databases

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

var stormSeed = flag.Uint64("storm.seed", 0, "of TestLongIdempotencyStorm's faults; 0: a random one")

const (
	stormWaves   = 4
	stormCallers = 400 // in each wave
	stormKeys    = 20  // in each wave
)

// A stormFault is a fault in one request of a storm.
type stormFault int

const (
	none         stormFault = iota
	clientLeaves            // its context ends at a random moment
	panicBetween            // after the debit
	panicAfter              // after the credit, with a response begun
	failAfter               // 500
	goOn                    // the client leaves, and the handler heeds no context
	faults
)

// A storm is a sequence of waves. In each, twenty callers share a key, on
// instances that lose connections, locks and clients.
type storm struct {
	*bank
	instances []http.Handler
	runs      atomic.Int64
	replays   atomic.Int64
	happened  [faults]atomic.Int64

	mu   sync.Mutex        // protects seen
	seen map[string]string // key → body of the responses of 2xx
}

// Each key takes effect at most once, and exactly once if a client has seen a
// success. Every effect has its stored response, and none is incomplete. All
// successful responses for a key are equal.
func TestLongIdempotencyStorm(t *testing.T) {
	eachBankAndPostgreSQL(t, func(t *testing.T, b *bank) {
		seed := *stormSeed
		if seed == 0 {
			seed = rand.Uint64() //nolint:gosec // a test's
		}
		t.Logf("-storm.seed %d", seed)
		s := &storm{bank: b, seen: make(map[string]string)}
		s.open()
		for wave := 0; wave < stormWaves || wave < 100 && !s.complete(); wave++ {
			s.wave(seed, wave)
			s.calm(wave)
		}
		s.check()
	})
}

// complete reports whether every fault has happened in a handler.
func (s *storm) complete() bool {
	for f := range s.happened {
		if s.happened[f].Load() == 0 {
			return false
		}
	}
	return true
}

// open starts three instances. Two have Sessions of their own. The locks of the
// third are unavailable, and it admits every request.
func (s *storm) open() {
	s.t.Helper()
	locks := s.dsn
	if s.dialect == sqllock.SQLite { // the locks have a file of their own, as the documentation says
		locks = "file:" + filepath.Join(s.t.TempDir(), "locks.db") + "?_pragma=busy_timeout(5000)"
	}
	for range 2 {
		pool := open(s.t, s.driver, locks)
		pool.SetMaxOpenConns(3)
		opts := append(lockertest.Orders{LeaseTable: s.leaseTable}.Options(), sqllock.WithLease(10*time.Second))
		limiter := ratelimit.OneAtATime(session(s.t, pool, opts...), "pay", ratelimit.WithWait(300*time.Millisecond, stormCallers))
		s.instances = append(s.instances, s.instance(s.onceBy(limiter)))
	}
	s.instances = append(s.instances, s.instance(s.unlocked()))
}

// instance serves requests through i. Handlers fail as the plans of their
// requests say.
func (s *storm) instance(i *idempotency.Middleware) http.Handler {
	return i.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		plan, ctx := r.Context().Value(planKey{}).(plan), r.Context()
		if plan.late {
			defer time.AfterFunc(plan.leave, plan.left).Stop()
		}
		note, err := io.ReadAll(r.Body)
		if err != nil {
			s.t.Error(err)
		}
		if plan.fault == goOn {
			ctx = context.WithoutCancel(ctx)
		}
		s.happened[plan.fault].Add(1)
		body := fmt.Sprintf("%s/%d", note, s.runs.Add(1))
		tx, _ := idempotency.Tx(r.Context())
		book := func(account string) error {
			_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO ledger VALUES ('%s', '%s')", account, body))
			return err
		}
		err = book("debit")
		pause(ctx, plan.work)
		if plan.fault == panicBetween {
			panic(errPlanned)
		}
		if err == nil {
			err = book("credit")
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return // as database/sql's own examples do
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		case plan.fault == failAfter:
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, body)
			if plan.fault == panicAfter {
				panic(errPlanned)
			}
		}
	}))
}

var errPlanned = errors.New("planned")

type planKey struct{}

// A plan says what happens to one request.
type plan struct {
	key   string
	fault stormFault
	work  time.Duration // how long the handler works
	leave time.Duration // when the client leaves
	late  bool          // that long after the handler has begun
	left  func()        // the client leaves
}

// wave sends many requests at once, while connections are killed.
func (s *storm) wave(seed uint64, wave int) {
	ctx, stop := context.WithCancel(s.t.Context())
	var killer, callers sync.WaitGroup
	killer.Go(func() { s.kill(ctx, rand.New(rand.NewPCG(seed, uint64(wave)<<32))) }) //nolint:gosec // a test's
	for caller := range stormCallers {
		callers.Go(func() {
			dice := rand.New(rand.NewPCG(seed, uint64(wave)<<32+uint64(caller)+1)) //nolint:gosec // a test's
			time.Sleep(time.Duration(dice.IntN(300)) * time.Millisecond)           // the requests are spread over time
			p := plan{
				key:   fmt.Sprintf("w%d-k%d", wave, dice.IntN(stormKeys)),
				fault: stormFault(dice.IntN(int(faults))),
				work:  time.Duration(dice.IntN(5000)) * time.Microsecond,
				leave: time.Minute,
			}
			if p.fault == clientLeaves || p.fault == goOn {
				p.late, p.leave = dice.IntN(4) > 0, time.Duration(dice.IntN(5000))*time.Microsecond
			}
			s.send(s.instances[dice.IntN(len(s.instances))], p)
		})
	}
	callers.Wait()
	stop()
	killer.Wait()
}

// send sends a request, and records a success that the client sees.
func (s *storm) send(instance http.Handler, p plan) (status int) {
	ctx, left := context.WithCancel(s.t.Context())
	defer left()
	if !p.late {
		defer time.AfterFunc(p.leave, left).Stop()
	}
	p.left = left
	ctx = context.WithValue(ctx, planKey{}, p)
	defer func() {
		if r := recover(); r != nil && r != errPlanned { //nolint:errorlint // it is that one
			panic(r)
		}
	}()
	w := post(ctx, instance, p.key, p.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch w.Code {
	case http.StatusCreated:
		if before, ok := s.seen[p.key]; ok && before != w.Body.String() {
			s.t.Errorf("key %s: one client has seen %q, and another %q", p.key, before, w.Body)
		}
		s.seen[p.key] = w.Body.String()
	case http.StatusConflict, http.StatusInternalServerError, http.StatusServiceUnavailable:
	default:
		if ctx.Err() == nil {
			s.t.Errorf("key %s: status %d: %s", p.key, w.Code, w.Body)
		}
	}
	if w.Header().Get("Idempotency-Replayed") != "" {
		s.replays.Add(1)
	}
	return w.Code
}

// kill ends connections of the database, both of locks and of transactions,
// until ctx ends. SQLite has no connections to end.
func (s *storm) kill(ctx context.Context, dice *rand.Rand) {
	db := open(s.t, s.driver, s.dsn)
	defer db.Close()
	db.SetMaxOpenConns(1)
	for ctx.Err() == nil && s.dialect != sqllock.SQLite {
		time.Sleep(time.Duration(dice.IntN(30)) * time.Millisecond)
		victim := "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID() ORDER BY RAND() LIMIT 1"
		end := "KILL %d"
		if s.dialect == sqllock.PostgreSQL {
			victim = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1"
			end = "SELECT pg_terminate_backend(%d)"
		}
		var id int64
		if db.QueryRowContext(ctx, victim).Scan(&id) == nil {
			_, _ = db.ExecContext(ctx, fmt.Sprintf(end, id))
		}
	}
}

// calm repeats each key of a wave until it succeeds, as a client retries.
func (s *storm) calm(wave int) {
	for n := range stormKeys {
		p := plan{key: fmt.Sprintf("w%d-k%d", wave, n), leave: time.Minute}
		lockertest.Eventually(s.t, "the retry of "+p.key+" succeeds", func() bool {
			return s.send(s.instances[n%len(s.instances)], p) == http.StatusCreated
		})
	}
}

// check compares the ledger and the stored responses with what clients have
// seen. Every key has succeeded by then.
func (s *storm) check() {
	for key, body := range s.seen {
		for _, account := range []string{"debit", "credit"} {
			if n := number(s.t, s.db, fmt.Sprintf("SELECT count(*) FROM ledger WHERE account = '%s' AND note = '%s'", account, body)); n != 1 {
				s.t.Errorf("key %s: clients have seen %q, of which %d rows of %s are booked", key, body, n, account)
			}
		}
	}
	s.wantEffects(len(s.seen))
	for condition, want := range map[string]int{"status = 201": len(s.seen), "status IS NULL OR status <> 201": 0} {
		if n := number(s.t, s.db, "SELECT count(*) FROM latchkey_responses WHERE "+condition); n != want {
			s.t.Errorf("%d responses with %s are stored, want %d", n, condition, want)
		}
	}
	if !s.complete() {
		s.t.Error("a fault never reached a handler")
	}
	s.t.Logf("%d keys, %d runs of the handler, %d replays", len(s.seen), s.runs.Load(), s.replays.Load())
}
