package lockui_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
)

// A locksJSON is the part of the JSON of the locks that tests read.
type locksJSON struct {
	Database struct {
		State string  `json:"state"`
		Age   float64 `json:"age_seconds"`
	} `json:"database"`
	Total int   `json:"total"`
	Pages int   `json:"pages"`
	Locks []any `json:"locks"`
}

// While the server is frozen the page shows what it saw last. After it the page is
// as before.
func TestServerAway(t *testing.T) {
	t.Parallel()
	dbtest.EachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		db := dbtest.Open(t, driver, cluster.DSN(""))
		dbtest.ExecuteOn(t, dbtest.Conn(t, dbtest.Open(t, driver, cluster.DSN(""))), "SELECT pg_advisory_lock(1)")
		server := serve(t, lockui.New(db))
		locks := func() (seen locksJSON) {
			getJSON(t, server.URL+"/locks", &seen)
			return seen
		}
		lockertest.Eventually(t, "the lock", func() bool { return locks().Total == 1 })
		if err := cluster.Freeze(); err != nil {
			t.Fatal(err)
		}
		lockertest.Eventually(t, "the database is away", func() bool {
			seen := locks()
			if seen.Total != 1 {
				t.Fatalf("the last state is forgotten: %+v", seen)
			}
			return seen.Database.State == "away"
		})
		if err := cluster.Thaw(); err != nil {
			t.Fatal(err)
		}
		lockertest.Eventually(t, "the database is back", func() bool { return locks().Database.State == "ok" })
	})
}

// 10,000 locks of a real server are on pages of 100.
func TestTenThousandLocks(t *testing.T) {
	t.Parallel()
	db := dbtest.Open(t, "pgx", pgtest.Database(t))
	dbtest.ExecuteOn(t, dbtest.Conn(t, db), "SELECT count(pg_advisory_lock(i)) FROM generate_series(1, 10000) i")
	server := serve(t, lockui.New(db))
	lockertest.Eventually(t, "all locks", func() bool {
		var seen locksJSON
		getJSON(t, server.URL+"/locks?page=100", &seen)
		return seen.Total == 10_000 && seen.Pages == 100 && len(seen.Locks) == 100
	})
}

// Streams work over HTTP/1 and HTTP/2. On HTTP/1 a stream has its connection alone:
// a write deadline would hold for the response after it.
func TestStreamProtocols(t *testing.T) {
	t.Parallel()
	page := lockui.New(dbtest.Open(t, "pgx", pgtest.Database(t)))
	server := httptest.NewUnstartedServer(page)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() { _ = page.Close(); server.Close() })
	for major, client := range map[int]*http.Client{
		1: {Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}},
		2: server.Client(),
	} {
		response, err := client.Get(server.URL + "/events?view=locks")
		if err != nil {
			t.Fatal(err)
		}
		part := make([]byte, 16)
		if _, err := io.ReadFull(response.Body, part); err != nil || !strings.HasPrefix(string(part), "event: view\ndata") {
			t.Errorf("HTTP/%d: %q, %v", major, part, err)
		}
		if response.ProtoMajor != major || response.Close != (major == 1) || response.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("HTTP/%d, close %t, %v", response.ProtoMajor, response.Close, response.Header)
		}
		_ = response.Body.Close()
		client.CloseIdleConnections()
	}
}

// A server that shuts down ends the streams by the page's Close, as the Handler's
// documentation says.
func TestShutdown(t *testing.T) {
	t.Parallel()
	page := lockui.New(dbtest.Open(t, "pgx", pgtest.Database(t)))
	server := httptest.NewUnstartedServer(page)
	server.Config.RegisterOnShutdown(func() { _ = page.Close() })
	server.Start()
	response, err := http.Get(server.URL + "/events?view=locks")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := server.Config.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := response.Body.Read(make([]byte, 1)); err != nil {
		t.Logf("the stream ended with %v", err)
	}
	server.Close()
}

// If the service has taken all connections of the pool, the page says so: it does not
// look as if the database were away. And it takes none from the service.
func TestFullPool(t *testing.T) {
	t.Parallel()
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := dbtest.Open(t, driver, dsn)
		db.SetMaxOpenConns(1)
		conn := dbtest.Conn(t, db)
		server := serve(t, lockui.New(db))
		lockertest.Eventually(t, "the reason", func() bool {
			_, body := get(t, server.URL+"/locks")
			return strings.Contains(body, "all connections of this page&#39;s pool are in use")
		})
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		lockertest.Eventually(t, "a look", func() bool {
			_, body := get(t, server.URL+"/locks")
			return strings.Contains(body, "Database: ok.")
		})
	})
}
