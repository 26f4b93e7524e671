package idempotency_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// nowhere is a database that is away. The response to a well-formed key is 503,
// and to any other 400.
type nowhere struct{}

func (nowhere) Connect(context.Context) (driver.Conn, error) { return nil, driver.ErrBadConn }
func (nowhere) Driver() driver.Driver                        { return nil }

// A key of 1 to 255 printable ASCII characters is good when it is quoted, with
// parameters and without. Nothing that is not printable ASCII is ever a key.
func FuzzKey(f *testing.F) {
	for _, seed := range []string{"", "a", `"a"`, `"`, `"a\"b\\"`, "a b", "a,b", "é", "\x00", strings.Repeat("x", 256), "a\\", `"a";b=1`, `"a";b=%"%c3%bc";c=@1`} {
		f.Add(seed)
	}
	db := sql.OpenDB(nowhere{})
	f.Cleanup(func() { _ = db.Close() })
	b := &bank{}
	b.db = db
	h := b.onceBy(ratelimit.OneAtATime(sqllock.NewMemory(), "pay"), idempotency.WithRoute(httpmw.Header(user))).Handler(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("not reached") }))
	status := func(value string) int {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set(user, "ada")
		r.Header["Idempotency-Key"] = []string{value}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	f.Fuzz(func(t *testing.T, key string) {
		printable := !strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' })
		good := printable && key != "" && len(key) <= 255
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		for _, parameters := range []string{"", ";p", `;p="q"; r=1.5`} {
			if got := status(quoted + parameters); got != map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusBadRequest}[good] {
				t.Errorf("%q as a string before %q: %d", key, parameters, got)
			}
		}
		if got := status(key); got == http.StatusServiceUnavailable && !printable || got != http.StatusServiceUnavailable && got != http.StatusBadRequest {
			t.Errorf("%q as it is: %d", key, got)
		}
	})
}
