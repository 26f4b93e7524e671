package lockui_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A registry in a schema that the search_path does not have is on the page with
// WithSchema, and in the report of its doctor. The overview has the server processes
// of a Session.
func TestRegistryInASchema(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := dbtest.Open(t, "pgx", dsn)
	for _, statement := range append([]string{"CREATE SCHEMA ops", "SET search_path = ops"}, lockwatch.Schema(sqllock.PostgreSQL)...) {
		db.SetMaxOpenConns(1)
		dbtest.Execute(t, db, statement)
	}
	dbtest.Execute(t, db, "RESET search_path")
	db.SetMaxOpenConns(0)
	locks := dbtest.Session(t, "pgx", dsn, sqllock.WithRegistry("ops"), beats)
	defer dbtest.Unlock(t, dbtest.Lock(t, locks, sqllock.Namespace("export").Key("ada")))

	server := serve(t, lockui.New(db, lockui.WithSession("main", locks), lockui.WithSchema("ops")))
	var seen struct {
		Database struct {
			Waits bool `json:"waits_known"`
		} `json:"database"`
		Locks []struct {
			Namespace string `json:"namespace"`
		} `json:"locks"`
	}
	lockertest.Eventually(t, "the registration", func() bool {
		getJSON(t, server.URL+"/locks", &seen)
		return len(seen.Locks) == 1 && seen.Locks[0].Namespace == "export"
	})
	if !seen.Database.Waits {
		t.Errorf("the registry is not read: %+v", seen)
	}
	_, body := get(t, server.URL+"/")
	contains(t, body, fmt.Sprintf("<dt>Server processes</dt><dd>%d</dd>", locks.Connections()[0].PID))
	_, body = post(t, server.URL+"/doctor", nil) // it leads to the report
	contains(t, body, "2 tables of latchkey")
}

// A search in a namespace that nothing on the page has says so. A mistyped one would
// look like a free key.
func TestSearchInAnUnknownNamespace(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := dbtest.Open(t, "pgx", dsn)
	locks := dbtest.Session(t, "pgx", dsn)
	server := serve(t, lockui.New(db, lockui.WithLimiter(ratelimit.OneAtATime(locks, "export"))))
	const hint = "Is it mistyped?"
	for _, tt := range []struct {
		namespace, id string
		want          bool
	}{{"export", "ada", false}, {"exprot", "ada", true}, {"", "17", false}} {
		response, body := post(t, server.URL+"/search", url.Values{"namespace": {tt.namespace}, "id": {tt.id}})
		if response.StatusCode != http.StatusOK || strings.Contains(body, hint) != tt.want || strings.Contains(body, "exprot") {
			t.Errorf("%s: status %d: %s", tt.namespace, response.StatusCode, body)
		}
		if tt.want {
			contains(t, body, "The limiters have: export.")
		}
	}
	lock := dbtest.Lock(t, locks, sqllock.Namespace("other").Key("ada"))
	defer dbtest.Unlock(t, lock)
	lockertest.Eventually(t, "a lock that is held is in a namespace that is right", func() bool {
		_, body := post(t, server.URL+"/search", url.Values{"namespace": {"other"}, "id": {"ada"}})
		return strings.Contains(body, "1 held.") && !strings.Contains(body, hint)
	})
}
