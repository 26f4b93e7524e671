package httpmw_test

import (
	"database/sql"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// tenant is the header with the tenant of a request.
const tenant = "X-Tenant"

// products returns three levels over locks: one request of a user, two of a
// tenant and three in all.
func products(locks sqllock.Locker, policy ...ratelimit.Option) []httpmw.Level {
	return []httpmw.Level{
		{Limiter: ratelimit.OneAtATime(locks, "user", policy...), Key: httpmw.Header(user)},
		{Limiter: ratelimit.AtMost(2, locks, "tenant", policy...), Key: httpmw.Header(tenant)},
		{Limiter: ratelimit.AtMost(3, locks, "total", policy...), Key: constant("all", nil)},
	}
}

// Two instances on PostgreSQL share three levels. Each level is the full one in
// turn, for either instance. A rejected request leaves no place behind.
func TestStackOfTwoInstances(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	g := httptesting.NewGate(t)
	var instances []*httptest.Server
	for _, driver := range pgtest.Drivers() {
		m := httpmw.NewStack(products(httptesting.Session(t, dbtest.Open(t, driver, dsn))))
		instances = append(instances, httptesting.Serve(t, m.Handler(g)))
	}
	var inside []<-chan httptesting.Reply
	enter := func(which int, tenant, user string) {
		t.Helper()
		inside = append(inside, sendAs(t, instances[which%len(instances)], tenant, user))
		httptesting.Receive(t, g.Inside, "request of "+user)
	}
	refused := func(tenant, user, full string) {
		t.Helper()
		for i, s := range instances {
			r := httptesting.Receive(t, sendAs(t, s, tenant, user), "rejection")
			if r.StatusCode != http.StatusTooManyRequests || !strings.Contains(r.Text, `The limit \"`+full+`\" admits`) {
				t.Errorf("instance %d, %s of %s: status %d, %s; want 429 of %s", i, user, tenant, r.StatusCode, r.Text, full)
			}
		}
	}
	enter(0, "acme", "ada")
	refused("acme", "ada", "user")
	enter(1, "acme", "grace")
	refused("acme", "ada", "user")
	refused("acme", "mary", "tenant")
	enter(0, "other", "eve")
	refused("third", "joan", "total")
	refused("acme", "ada", "user")

	close(g.Leave)
	for _, c := range inside {
		httptesting.Receive(t, c, "response").Want(t, http.StatusOK)
	}
	wantNoLocks(t, dbtest.Open(t, pgtest.Drivers()[0], dsn))
}

// sendAs sends a request of a user of a tenant from another goroutine.
func sendAs(t *testing.T, s *httptest.Server, of, who string) <-chan httptesting.Reply {
	t.Helper()
	c := make(chan httptesting.Reply, 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(user, who)
	req.Header.Set(tenant, of)
	go func() {
		r, err := do(s, req)
		if err != nil {
			t.Error(err)
		}
		c <- r
	}()
	return c
}

// wantNoLocks waits until the server of db's database holds no lock. The
// Sessions of the test are still open, so what they had left would be there.
func wantNoLocks(t *testing.T, db *sql.DB) {
	t.Helper()
	lockertest.Eventually(t, "locks that no caller holds to go", func() bool {
		var n int
		err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}
