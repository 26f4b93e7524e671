package lockui_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// beats makes a Session write to the registry soon.
var beats = sqllock.WithHeartbeat(20 * time.Millisecond)

// hostile is markup that runs a script, or leaves an attribute, if it is not escaped.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>'` + "`{{.}}"

// everyView reads all views of a page, as HTML, as its changing part and as JSON.
func everyView(t *testing.T, base string) (all string) {
	t.Helper()
	for _, path := range []string{"/", "/locks", "/waits", "/findings", "/doctor"} {
		_, html := get(t, base+path)
		_, json := get(t, base+path+"?format=json")
		_, part := get(t, base+path+"?part=changing")
		all += html + json + part
	}
	return all
}

// What a client writes about itself appears as text, and only with WithNames.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := dbtest.Open(t, driver, dsn)
		dbtest.Create(t, db, lockwatch.Schema(sqllock.PostgreSQL))
		locks := dbtest.Session(t, driver, dsn, sqllock.WithRegistry("public"), sqllock.WithHolder(hostile), beats)
		lock := dbtest.Lock(t, locks, sqllock.ID(1))
		lock.SetName(hostile)
		conn := dbtest.Conn(t, db)
		dbtest.ExecuteOn(t, conn, "SELECT set_config('application_name', '"+strings.ReplaceAll(hostile, "'", "''")+"', false), pg_advisory_lock(2)")
		lockertest.Eventually(t, "the heartbeat with the name", func() bool {
			return dbtest.Number(t, db, "SELECT count(*) FROM latchkey_heartbeats WHERE name <> ''") == 1
		})
		shown := everyView(t, serve(t, lockui.New(db, lockui.WithNames(), lockui.WithSession(hostile, locks))).URL)
		contains(t, shown, "&lt;script&gt;alert(1)", `\u003cscript\u003e`)
		for _, live := range []string{"<script>alert", "<img src=x"} {
			if strings.Contains(shown, live) {
				t.Errorf("%q is in a view", live)
			}
		}
		if hidden := everyView(t, serve(t, lockui.New(db)).URL); strings.Contains(hidden, "alert(") || strings.Contains(hidden, "127.0.0.1") {
			t.Errorf("a name or an address is shown without WithNames:\n%s", hidden)
		}
	})
}

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

// An id is in no response, no address and no line of a log, whatever is done with it.
func TestNoID(t *testing.T) {
	t.Parallel()
	const id = "ada.lovelace@example.com"
	dsn := pgtest.Database(t)
	db := dbtest.Open(t, "pgx", dsn)
	locks := dbtest.Session(t, "pgx", dsn)
	limiter := ratelimit.OneAtATime(locks, "export")
	lock, err := limiter.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer dbtest.Unlock(t, lock)
	var log safeBuffer
	page := lockui.New(db, lockui.WithLimiter(limiter), lockui.WithSession("main", locks), lockui.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	var addresses []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		addresses = append(addresses, r.RequestURI)
		page.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { _ = page.Close(); server.Close() })
	all := everyView(t, server.URL)
	for _, form := range []url.Values{
		{"namespace": {"export"}, "id": {id}}, {"namespace": {"ex:port"}, "id": {id}}, {"namespace": {""}, "id": {id}}, {"id": {id, id}},
		{"namespace": {id}, "id": {id}}, {"namespace": {"export"}, "id": {id}, "format": {"json"}}, {"id": {strings.Repeat(id, 1000)}},
	} {
		response, body := post(t, server.URL+"/search", form)
		for _, values := range response.Header {
			body += strings.Join(values, " ")
		}
		all += body
	}
	if strings.Contains(all, "ada") || strings.Contains(all, url.QueryEscape(id)) {
		t.Errorf("the id is in a response")
	}
	if text := log.String() + strings.Join(addresses, " "); strings.Contains(text, "ada") {
		t.Errorf("the id is in a log or an address: %s", text)
	}
	for id, want := range map[string]string{id: "1 held.", "bob": "No lock of this id is held."} {
		lockertest.Eventually(t, "the result of a search", func() bool {
			_, found := post(t, server.URL+"/search", url.Values{"namespace": {"export"}, "id": {id}})
			return strings.Contains(found, want)
		})
	}
}

// A search without a namespace is for a number, and finds waiters too.
func TestSearchByNumber(t *testing.T) {
	t.Parallel()
	db := dbtest.Open(t, "pgx", pgtest.Database(t))
	dbtest.ExecuteOn(t, dbtest.Conn(t, db), "SELECT pg_advisory_lock(-42)")
	server := serve(t, lockui.New(db))
	for _, tt := range []struct {
		form   url.Values
		status int
		want   string
	}{
		{url.Values{"id": {"-42"}}, 200, "1 held."},
		{url.Values{"id": {" -42 "}}, 200, "1 held."},
		{url.Values{"id": {"43"}}, 200, "No lock of this id is held."},
		{url.Values{"id": {"x"}}, 422, "must be a number"},
		{url.Values{"namespace": {"a:b"}, "id": {"x"}}, 422, "neither"},
		{url.Values{"id": {strings.Repeat("9", 20_000)}}, 400, "cannot be read"},
	} {
		if response, body := post(t, server.URL+"/search", tt.form); response.StatusCode != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%.30v: status %d, no %q in %.900s", tt.form, response.StatusCode, tt.want, body)
		}
	}
}

// A safeBuffer is a log that several goroutines write.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
