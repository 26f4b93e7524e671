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

var (
	stormTime = flag.Duration("storm", 2*time.Second, "how long TestIdempotencyStorm begins waves of callers")
	stormSeed = flag.Uint64("storm.seed", 0, "of TestIdempotencyStorm's faults; 0: a random one")
)

const (
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
	hangUp                  // 499 as soon as the context ends, else 201
	goOn                    // the handler heeds no context
	faults
)

// A storm is a sequence of waves. In each, twenty callers share a key, on
// instances that lose connections, locks and clients.
type storm struct {
	*bank
	instances []http.Handler
	runs      atomic.Int64
	kills     atomic.Int64
	replays   atomic.Int64
	happened  [faults]atomic.Int64

	mu   sync.Mutex        // protects seen
	seen map[string]string // key → body of the responses of 2xx
}

// Each key takes effect at most once, and exactly once if a client has seen a
// success. Every effect has its stored response, and none is incomplete. All
// successful responses for a key are equal.
func TestLongIdempotencyStorm(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		seed := *stormSeed
		if seed == 0 {
			seed = rand.Uint64() //nolint:gosec // a test's
		}
		t.Logf("-storm.seed %d", seed)
		s := &storm{bank: b, seen: make(map[string]string)}
		s.open()
		const most = 1000 // waves, of which a few make every fault happen
		for wave, end := 0, time.Now().Add(*stormTime); wave == 0 || time.Now().Before(end) || !s.complete() && wave < most; wave++ {
			s.wave(seed, wave)
			s.calm(wave)
		}
		s.check()
	})
}

// complete reports whether every fault has happened.
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
		limiter := ratelimit.OneAtATime(session(s.t, pool), "pay", ratelimit.WithWait(300*time.Millisecond, stormCallers))
		s.instances = append(s.instances, s.instance(s.onceBy(limiter)))
	}
	s.instances = append(s.instances, s.instance(s.unlocked()))
}

// instance serves requests through i. Clients and handlers fail as their plans
// say.
func (s *storm) instance(i *idempotency.Middleware) http.Handler {
	return i.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		plan := r.Context().Value(clientKey{}).(client)
		if plan.late {
			timer := time.AfterFunc(plan.leave, plan.left)
			defer timer.Stop()
		}
		run := s.runs.Add(1)
		note, err := io.ReadAll(r.Body)
		if err != nil {
			s.t.Error(err)
		}
		ctx := r.Context()
		if plan.fault == goOn {
			ctx = context.WithoutCancel(ctx)
		}
		tx, _ := idempotency.Tx(r.Context())
		book := func(account string) error {
			_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO ledger VALUES ('%s', '%s/%d')", account, note, run))
			return err
		}
		s.happened[plan.fault].Add(1)
		err = book("debit")
		select { // work
		case <-time.After(plan.work):
		case <-ctx.Done():
		}
		if plan.fault == panicBetween {
			panic(errPlanned)
		}
		if err == nil {
			err = book("credit")
		}
		switch {
		case plan.fault == hangUp && ctx.Err() != nil:
			w.WriteHeader(499)
		case err != nil && ctx.Err() != nil:
			return // as database/sql's own examples do
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		case plan.fault == failAfter:
			w.WriteHeader(http.StatusInternalServerError)
		default:
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "%s/%d", note, run)
			if plan.fault == panicAfter {
				panic(errPlanned)
			}
		}
	}))
}

var errPlanned = errors.New("planned")

type clientKey struct{}

// A plan says what happens to one request.
type plan struct {
	key   string
	fault stormFault
	work  time.Duration // how long the handler works
	leave time.Duration // when the client leaves, after it has sent its request
	late  bool          // the client leaves that long after the handler has begun
}

// A client is the other end of a request.
type client struct {
	plan
	left context.CancelFunc
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
			if p.fault == clientLeaves || p.fault == hangUp || p.fault == goOn {
				p.late = dice.IntN(4) > 0
				p.leave = time.Duration(dice.IntN(5000)) * time.Microsecond
			}
			s.send(s.t.Context(), s.instances[dice.IntN(len(s.instances))], p)
		})
	}
	callers.Wait()
	stop()
	killer.Wait()
}

// send sends a request, and records a success that the client sees.
func (s *storm) send(ctx context.Context, instance http.Handler, p plan) (status int) {
	ctx, left := context.WithCancel(ctx)
	defer left()
	if !p.late {
		timer := time.AfterFunc(p.leave, left)
		defer timer.Stop()
	}
	ctx = context.WithValue(ctx, clientKey{}, client{p, left})
	defer func() {
		if r := recover(); r != nil && r != errPlanned { //nolint:errorlint // it is that one
			panic(r)
		}
	}()
	w := post(ctx, instance, p.key, p.key)
	if w.Code >= 200 && w.Code < 300 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if before, ok := s.seen[p.key]; ok && before != w.Body.String() {
			s.t.Errorf("key %s: one client has seen %q, and another %q", p.key, before, w.Body)
		}
		s.seen[p.key] = w.Body.String()
	}
	switch w.Code {
	case http.StatusCreated, 499, http.StatusConflict, http.StatusInternalServerError, http.StatusServiceUnavailable:
	default:
		s.t.Errorf("key %s: status %d: %s", p.key, w.Code, w.Body)
	}
	if w.Header().Get("Idempotency-Replayed") != "" {
		s.replays.Add(1)
		if w.Code != http.StatusCreated {
			s.t.Errorf("key %s: status %d is stored", p.key, w.Code)
		}
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
		if db.QueryRowContext(ctx, victim).Scan(&id) != nil { // there is none
			continue
		}
		if _, err := db.ExecContext(ctx, fmt.Sprintf(end, id)); err == nil {
			s.kills.Add(1)
		}
	}
}

// calm repeats each key of a wave until it succeeds, as a client retries.
func (s *storm) calm(wave int) {
	for n := range stormKeys {
		p := plan{key: fmt.Sprintf("w%d-k%d", wave, n), leave: time.Minute}
		lockertest.Eventually(s.t, "the retry of "+p.key+" succeeds", func() bool {
			return s.send(s.t.Context(), s.instances[n%len(s.instances)], p) == http.StatusCreated
		})
	}
}

// check compares the ledger and the stored responses with what clients have
// seen. Every key has succeeded by then.
func (s *storm) check() {
	for _, account := range []string{"debit", "credit"} {
		booked := make(map[string]int)
		rows, err := s.db.QueryContext(s.t.Context(), "SELECT note FROM ledger WHERE account = '"+account+"'")
		if err != nil {
			s.t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var note string
			if err := rows.Scan(&note); err != nil {
				s.t.Fatal(err)
			}
			booked[note]++
		}
		if err := rows.Err(); err != nil {
			s.t.Fatal(err)
		}
		for key, body := range s.seen {
			if booked[body] != 1 {
				s.t.Errorf("key %s: clients have seen %q, of which %d rows of %s are booked", key, body, booked[body], account)
			}
		}
		if len(booked) != len(s.seen) {
			s.t.Errorf("%d effects in rows of %s, and responses to %d keys", len(booked), account, len(s.seen))
		}
	}
	if n := number(s.t, s.db, "SELECT count(*) FROM latchkey_responses WHERE status = 201"); n != len(s.seen) {
		s.t.Errorf("%d responses are stored, want those of %d keys", n, len(s.seen))
	}
	if n := number(s.t, s.db, "SELECT count(*) FROM latchkey_responses WHERE status IS NULL OR status <> 201"); n != 0 {
		s.t.Errorf("%d responses other than successes are stored", n)
	}
	var happened [faults]int64
	for f := range happened {
		happened[f] = s.happened[f].Load()
		if happened[f] == 0 {
			s.t.Errorf("fault %d never reached a handler", f)
		}
	}
	s.t.Logf("%d keys, %d runs of the handler (faults %v), %d replays, %d kills", len(s.seen), s.runs.Load(), happened, s.replays.Load(), s.kills.Load())
	if s.replays.Load() == 0 || s.dialect != sqllock.SQLite && s.kills.Load() == 0 {
		s.t.Error("the storm had no faults")
	}
}
