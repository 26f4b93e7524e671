package browser_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

const (
	viewers   = 200
	heldLocks = 10000
	phase     = 10 * time.Second

	// answersWithin bounds every response. The page promises a second. The machine
	// of a test may be busy, so the test allows more, and its log has the times.
	answersWithin = 10 * time.Second
)

// With 10,000 locks held and 200 viewers the page answers, also while the database
// does not, and costs the database one look a second.
func TestLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"max_locks_per_transaction": "512"}))
	dsn, err := cluster.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pageDB, counts := countingDB(t, dsn)
	s := serve(t, dsn, pageDB)
	c := startClient(t, clientOrders{Driver: "pgx", DSN: dsn, Holder: "many"})

	a := newAudience(t, s.origin)
	began := time.Now()
	a.begin("few locks") // a look takes a moment, so only the page itself bounds their number
	time.Sleep(phase / 2)
	if looks, most := counts.looks.Load(), int64(time.Since(began)/time.Second)+1; looks > most {
		t.Errorf("with few locks: %d looks, want at most %d", looks, most)
	}
	c.fill(heldLocks)
	if n := len(s.snapshot().Holders); n < heldLocks {
		t.Fatalf("%d locks are held", n)
	}
	a.begin("many locks")
	time.Sleep(phase)
	a.begin("database away")
	if err := cluster.Freeze(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(phase)
	if err := cluster.Thaw(); err != nil {
		t.Fatal(err)
	}
	a.begin("database back")
	eventually(t, "the page shows the database again", func() bool { return strings.Contains(a.get("locks"), "Database: ok") })
	a.leave()
	elapsed := time.Since(began)

	a.report(t)
	looks, all := counts.looks.Load(), counts.all.Load()
	t.Logf("the database got %d looks in %.1f s, of %d statements in all", looks, elapsed.Seconds(), all)
	if most := int64(elapsed/time.Second) + 2; looks > most || looks < 2 {
		t.Errorf("%d looks, want at most %d, and at least 2", looks, most)
	}
}

// statementCounts counts what a pool sends.
type statementCounts struct {
	looks atomic.Int64 // statements that read pg_locks
	all   atomic.Int64
}

func (c *statementCounts) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	c.all.Add(1)
	if strings.Contains(q.SQL, "pg_locks") {
		c.looks.Add(1)
	}
	return ctx
}

func (c *statementCounts) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// countingDB opens a pool whose statements are counted.
func countingDB(t *testing.T, dsn string) (*sql.DB, *statementCounts) {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	counts := &statementCounts{}
	config.Tracer = counts
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	return db, counts
}

// An audience is many viewers. Each has a stream open, and loads a page every two
// seconds.
type audience struct {
	t      *testing.T
	base   string
	client *http.Client
	ctx    context.Context
	end    context.CancelFunc
	all    sync.WaitGroup

	mu      sync.Mutex // protects the fields below
	phases  []string
	current string
	took    map[string][]time.Duration // of page loads, by phase
	events  map[string]int             // that the streams got, by phase
	failure error                      // the first one
}

func newAudience(t *testing.T, origin string) *audience {
	a := &audience{
		t: t, base: origin + publicPrefix, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * viewers}},
		took: make(map[string][]time.Duration), events: make(map[string]int),
	}
	a.ctx, a.end = context.WithCancel(context.Background())
	t.Cleanup(a.leave)
	for i := range viewers {
		view := []string{"", "locks", "waits", "findings", "doctor"}[i%5]
		a.all.Go(func() { a.note(a.stream(view)) })
		a.all.Go(func() {
			pause := time.NewTimer(time.Duration(i) * 2 * time.Second / viewers)
			defer pause.Stop()
			for {
				select {
				case <-pause.C:
					a.get(view)
					pause.Reset(2 * time.Second)
				case <-a.ctx.Done():
					return
				}
			}
		})
	}
	return a
}

func (a *audience) begin(phase string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current = phase
	a.phases = append(a.phases, phase)
}

// leave ends all viewers.
func (a *audience) leave() {
	a.end()
	a.all.Wait()
	a.client.CloseIdleConnections()
}

// note keeps the first failure, unless the viewers are leaving.
func (a *audience) note(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil && a.failure == nil && a.ctx.Err() == nil {
		a.failure = err
	}
}

func (a *audience) request(path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(a.ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := a.client.Do(r)
	if err == nil && response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, response.Status)
	}
	return response, err
}

// get loads a page and returns it.
func (a *audience) get(view string) string {
	began := time.Now()
	response, err := a.request(view)
	if err != nil {
		a.note(err)
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		a.note(err)
		return ""
	}
	took := time.Since(began)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took[a.current] = append(a.took[a.current], took)
	return string(body)
}

// stream reads the events of a view until the viewers leave.
func (a *audience) stream(view string) error {
	response, err := a.request("events?view=" + view)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("a stream has ended: %w", err)
		}
		if strings.HasPrefix(line, "event: ") {
			a.mu.Lock()
			a.events[a.current]++
			a.mu.Unlock()
		}
	}
}

func (a *audience) report(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failure != nil {
		t.Error(a.failure)
	}
	for _, phase := range a.phases {
		took := a.took[phase]
		if len(took) == 0 {
			continue
		}
		slices.Sort(took)
		t.Logf("%-14s %5d pages, p50 %v, p99 %v, longest %v; %d events", phase, len(took),
			took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), a.events[phase])
		if took[len(took)-1] > answersWithin {
			t.Errorf("%s: a page took %v", phase, took[len(took)-1])
		}
	}
	for _, phase := range []string{"many locks", "database away"} {
		if a.events[phase] < viewers {
			t.Errorf("%s: %d streams got %d events", phase, viewers, a.events[phase])
		}
	}
}
