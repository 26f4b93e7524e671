package browser_test

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

const (
	publicPrefix  = "/ops/locks/" // of the page, as a browser sees it
	backendPrefix = "/locks/"     // where the page is mounted, behind the proxy
)

// A site is a service with the page, behind a reverse proxy on loopback.
type site struct {
	t       *testing.T
	db      *sql.DB // of the tests
	session *sqllock.Session
	limiter *ratelimit.Limiter // of the namespace exports
	origin  string             // of the proxy
}

// serve starts a service with the page on the database at dsn. The page looks at
// the database through pageDB, or through a pool of its own if that is nil.
func serve(t *testing.T, dsn string, pageDB *sql.DB, opts ...lockui.Option) *site {
	t.Helper()
	s := &site{t: t, db: dbtest.Open(t, "pgx", dsn)}
	for _, statement := range lockwatch.Schema(sqllock.PostgreSQL) {
		if _, err := s.db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	s.session = dbtest.Session(t, "pgx", dsn, sqllock.WithRegistry(""), sqllock.WithHolder("web"), sqllock.WithHeartbeat(200*time.Millisecond))
	s.limiter = ratelimit.OneAtATime(s.session, exports)
	if pageDB == nil {
		pageDB = dbtest.Open(t, "pgx", dsn)
	}
	// The requests come through a proxy, so the page needs WithAuthorize.
	everybody := func(*http.Request) bool { return true }
	page := lockui.New(pageDB, append([]lockui.Option{
		lockui.WithAuthorize(everybody), lockui.WithTerminate(everybody),
		lockui.WithSession("main", s.session), lockui.WithLimiter(s.limiter),
	}, opts...)...)
	mux := http.NewServeMux()
	mux.Handle(backendPrefix, page)
	backend := httptest.NewServer(mux)

	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	public := http.NewServeMux()
	public.Handle(publicPrefix, http.StripPrefix("/ops", &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		Transport: backend.Client().Transport,
	}))
	proxy := httptest.NewServer(public)
	t.Cleanup(func() {
		if err := page.Close(); err != nil {
			t.Error(err)
		}
		proxy.CloseClientConnections()
		proxy.Close()
		backend.Close()
	})
	s.origin = proxy.URL
	return s
}

// tab opens a tab for the page.
func (s *site) tab(t *testing.T, l look) *tab {
	t.Helper()
	return newTab(t, s.origin, l)
}

// snapshot returns what the database shows.
func (s *site) snapshot() *lockwatch.Snapshot {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	seen, err := lockwatch.Inspect(ctx, s.db)
	if err != nil {
		s.t.Fatal(err)
	}
	return seen
}
