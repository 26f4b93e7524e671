package lockui_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A client's name cannot turn the text around it: what does not print is escaped, in
// the JSON too.
func TestNoCharacterTurnsText(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := dbtest.Open(t, "pgx", dsn)
	dbtest.Create(t, db, lockwatch.Schema(sqllock.PostgreSQL))
	locks := dbtest.Session(t, "pgx", dsn, sqllock.WithRegistry(""), sqllock.WithHolder("left\u2066right"), beats)
	dbtest.Lock(t, locks, sqllock.ID(1)).SetName("shop\u202eevil")
	lockertest.Eventually(t, "the heartbeat with the name", func() bool {
		return dbtest.Number(t, db, "SELECT count(*) FROM latchkey_heartbeats WHERE name <> ''") == 1
	})
	shown := everyView(t, serve(t, lockui.New(db, lockui.WithNames())).URL)
	contains(t, shown, `shop\u202eevil`, `left\u2066right`)
	if strings.ContainsAny(shown, "\u202e\u2066") {
		t.Error("the page has these characters as they are")
	}
}

// Routers that say the pattern of a request as chi does need no StripPrefix. The
// mount point without its slash leads to the one with it.
func TestChi(t *testing.T) {
	t.Parallel()
	page := unopened(t)
	for _, tt := range []struct {
		pattern, target string
		want            int
	}{
		{"/admin/locks/*", "/admin/locks/", http.StatusOK},
		{"/admin/locks/*", "/admin/locks/waits", http.StatusOK},
		{"/admin/locks/*", "/admin/locks", http.StatusPermanentRedirect},
		{"/admin/locks", "/admin/locks", http.StatusPermanentRedirect},
		{"/admin/{tenant}/*", "/admin/locks", http.StatusPermanentRedirect},
		{"/admin/locks/*", "/admin/locks/none", http.StatusNotFound},
		{"/admin/locks/*", "/admin/locks?next=//evil.example/", http.StatusPermanentRedirect},
	} {
		got := ask(page, http.MethodGet, tt.target, func(r *http.Request) { r.Pattern, r.RequestURI = tt.pattern, tt.target })
		if got.StatusCode != tt.want || tt.want == http.StatusPermanentRedirect && got.Header.Get("Location") != "./locks/" {
			t.Errorf("%s at %s is %d, Location %q", tt.target, tt.pattern, got.StatusCode, got.Header.Get("Location"))
		}
	}
}
