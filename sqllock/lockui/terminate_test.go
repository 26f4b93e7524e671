package lockui_test

import (
	"database/sql"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
)

// holderOf locks a key on a connection of its own, and returns the form that names
// its session.
func holderOf(t *testing.T, driver, dsn string) (db *sql.DB, form url.Values) {
	t.Helper()
	db = dbtest.Open(t, driver, dsn)
	conn := dbtest.Conn(t, dbtest.Open(t, driver, dsn))
	dbtest.ExecuteOn(t, conn, "SELECT pg_advisory_lock(5)")
	pid := dbtest.BackendPID(t, conn)
	start := startOf(t, db, pid)
	return db, url.Values{"pid": {strconv.Itoa(pid)}, "start": {start}}
}

func startOf(t *testing.T, db *sql.DB, pid int) string {
	t.Helper()
	var start int64
	if err := db.QueryRow("SELECT (extract(epoch FROM backend_start) * 1000000)::bigint FROM pg_stat_activity WHERE pid = $1", pid).Scan(&start); err != nil {
		t.Fatal(err)
	}
	return strconv.FormatInt(start, 10)
}

func yes(*http.Request) bool { return true }

// An authorized viewer ends a session after a confirmation, and the log says so.
func TestTerminate(t *testing.T) {
	t.Parallel()
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db, form := holderOf(t, driver, dsn)
		var log safeBuffer
		server := serve(t, lockui.New(db, lockui.WithTerminate(yes), lockui.WithOperator(func(*http.Request) string { return "olga" }), lockui.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))
		_, body := get(t, server.URL+"/locks")
		link := "terminate?pid=" + form.Get("pid") + "&amp;start=" + form.Get("start")
		contains(t, body, link)
		_, body = get(t, server.URL+"/"+strings.ReplaceAll(link, "&amp;", "&"))
		contains(t, body, "End the session of process "+form.Get("pid"), "As last seen it holds 1.", `method="post"`)
		if n := dbtest.AdvisoryLocks(t, db); n != 1 {
			t.Fatalf("%d locks after the GET, want 1", n)
		}
		response, body := post(t, server.URL+"/terminate", form)
		if response.StatusCode != http.StatusOK {
			t.Fatalf("status %d: %s", response.StatusCode, body)
		}
		contains(t, body, "The session has been ended")
		lockertest.Eventually(t, "the server process has ended", func() bool { return dbtest.AdvisoryLocks(t, db) == 0 })
		if n := strings.Count(log.String(), "operator=olga"); n != 2 {
			t.Errorf("%d lines of the log say who it was, want that before and that after: %s", n, log.String())
		}
		if text := log.String(); !strings.Contains(text, "an operator has ended") || !strings.Contains(text, "pid="+form.Get("pid")) || strings.Contains(text, "127.0.0.1") {
			t.Errorf("the log is %s", text)
		}
		if response, body = post(t, server.URL+"/terminate", form); response.StatusCode != http.StatusConflict {
			t.Errorf("status %d for a session that is gone: %s", response.StatusCode, body)
		}
		contains(t, log.String(), "no server session was ended")
	})
}

// Nothing ends a session but a POST of an authorized viewer that names the session
// as it is: its PID, its start, and that it takes part in locking.
func TestTerminateRefuses(t *testing.T) {
	t.Parallel()
	db, form := holderOf(t, "pgx", pgtest.Database(t))
	idle := dbtest.Conn(t, db)
	idlePID := dbtest.BackendPID(t, idle)
	dbtest.ExecuteOn(t, idle, "BEGIN")
	dbtest.ExecuteOn(t, idle, "SELECT count(*) FROM pg_class") // it holds locks, and no advisory one
	later, err := strconv.ParseInt(form.Get("start"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	page := lockui.New(db, lockui.WithTerminate(func(r *http.Request) bool { return r.Header.Get("X-Operator") == "" }))
	server := serve(t, page)
	change := func(name, value string) url.Values {
		f := url.Values{"pid": form["pid"], "start": form["start"]}
		f.Set(name, value)
		return f
	}
	for _, tt := range []struct {
		name string
		form url.Values
		want int
	}{
		{"another start", change("start", strconv.FormatInt(later+1, 10)), http.StatusConflict},
		{"another pid", change("pid", "1"), http.StatusConflict},
		{"no advisory lock", url.Values{"pid": {strconv.Itoa(idlePID)}, "start": {startOf(t, db, idlePID)}}, http.StatusConflict},
		{"no start", url.Values{"pid": form["pid"]}, http.StatusBadRequest},
		{"no pid", url.Values{"start": form["start"]}, http.StatusBadRequest},
		{"nonsense", change("pid", "1; SELECT 1"), http.StatusBadRequest},
		{"too large", change("pid", "99999999999"), http.StatusBadRequest},
	} {
		if response, body := post(t, server.URL+"/terminate", tt.form); response.StatusCode != tt.want {
			t.Errorf("%s: status %d, want %d: %s", tt.name, response.StatusCode, tt.want, body)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		got := ask(page, method, "/terminate?"+form.Encode(), func(r *http.Request) { r.Header.Set("X-Operator", "no") })
		if got.StatusCode != http.StatusForbidden {
			t.Errorf("%s without the right is %d", method, got.StatusCode)
		}
	}
	if got := ask(page, http.MethodPost, "/terminate?"+form.Encode(), nil); got.StatusCode != http.StatusBadRequest {
		t.Errorf("a POST with the session in its address is %d", got.StatusCode)
	}
	readOnly := serve(t, lockui.New(db))
	if response, _ := post(t, readOnly.URL+"/terminate", form); response.StatusCode != http.StatusNotFound {
		t.Errorf("without WithTerminate: %d", response.StatusCode)
	}
	if n := dbtest.AdvisoryLocks(t, db); n != 1 {
		t.Errorf("%d locks are left, want 1", n)
	}
	if _, body := get(t, readOnly.URL+"/locks"); strings.Contains(body, "terminate") {
		t.Error("a read-only page has a link that ends sessions")
	}
}
