package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
)

type idKey struct{}

// identity returns the user of the tests' authentication.
func identity(ctx context.Context) (string, bool) {
	id, ok := ctx.Value(idKey{}).(string)
	return id, ok
}

// request returns a GET of target with header lines "Name: value".
func request(target string, lines ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func withIdentity(id string) *http.Request {
	r := request("/")
	return r.WithContext(context.WithValue(r.Context(), idKey{}, id))
}

func withPathValue(id string) *http.Request {
	r := request("/")
	r.SetPathValue("id", id)
	return r
}

func withoutHost() *http.Request { // HTTP/1.0 allows it
	r := request("/")
	r.Host = ""
	return r
}

// empty is a KeyFunc that returns an empty id without an error.
var empty = constant("", nil)

var keyFuncTests = []struct {
	name string
	key  httpmw.KeyFunc
	r    *http.Request
	want string
	err  error
}{
	{"header", httpmw.Header("x-user"), request("/", "X-User: ada"), "ada", nil},
	{"header, other scripts", httpmw.Header("X-User"), request("/", "X-User: 用户"), "用户", nil},
	{"no header", httpmw.Header("X-User"), request("/", "X-Other: ada"), "", httpmw.ErrNoKey},
	{"empty header", httpmw.Header("X-User"), request("/", "X-User: "), "", httpmw.ErrNoKey},
	{"header twice", httpmw.Header("X-User"), request("/", "X-User: ada", "x-user: eve"), "", ratelimit.ErrBadID},
	{"header twice, one empty", httpmw.Header("X-User"), request("/", "X-User: ada", "X-User: "), "", ratelimit.ErrBadID},
	{"host", httpmw.Header("host"), request("http://Acme.example:8080/"), "acme.example:8080", nil},
	{"no host", httpmw.Header("Host"), withoutHost(), "", httpmw.ErrNoKey},

	{"cookie", httpmw.Cookie("sid"), request("/", "Cookie: a=b; sid=ada"), "ada", nil},
	{"cookie, other case", httpmw.Cookie("sid"), request("/", "Cookie: SID=ada"), "", httpmw.ErrNoKey},
	{"no cookie", httpmw.Cookie("sid"), request("/"), "", httpmw.ErrNoKey},
	{"empty cookie", httpmw.Cookie("sid"), request("/", "Cookie: sid="), "", httpmw.ErrNoKey},
	{"cookie twice", httpmw.Cookie("sid"), request("/", "Cookie: sid=ada; sid=eve"), "", ratelimit.ErrBadID},
	{"cookie in two lines", httpmw.Cookie("sid"), request("/", "Cookie: sid=ada", "Cookie: sid=eve"), "", ratelimit.ErrBadID},

	{"query", httpmw.Query("id"), request("/?a=b&id=a%26da"), "a&da", nil},
	{"no query", httpmw.Query("id"), request("/?ID=ada"), "", httpmw.ErrNoKey},
	{"empty query", httpmw.Query("id"), request("/?id="), "", httpmw.ErrNoKey},
	{"query twice", httpmw.Query("id"), request("/?id=ada&id=eve"), "", ratelimit.ErrBadID},
	{"query malformed", httpmw.Query("id"), request("/?id=ada&x=%zz"), "", ratelimit.ErrBadID},
	{"query with semicolons", httpmw.Query("id"), request("/?id=ada;id=eve"), "", ratelimit.ErrBadID},

	{"path value", httpmw.PathValue("id"), withPathValue("ada"), "ada", nil},
	{"no path value", httpmw.PathValue("id"), request("/"), "", httpmw.ErrNoKey},

	{"context", httpmw.FromContext(identity), withIdentity("ada"), "ada", nil},
	{"nothing in the context", httpmw.FromContext(identity), request("/"), "", httpmw.ErrNoKey},
	{"empty in the context", httpmw.FromContext(identity), withIdentity(""), "", httpmw.ErrNoKey},

	{"join of one", httpmw.Join(httpmw.Query("a")), request("/?a=x"), "1:x", nil},
	{"join", httpmw.Join(httpmw.Query("a"), httpmw.Query("b")), request("/?a=tenant&b=7"), "6:tenant1:7", nil},
	{"join, bytes count", httpmw.Join(httpmw.Query("a")), request("/?a=%C3%A9"), "2:é", nil},
	{"join, first missing", httpmw.Join(httpmw.Query("a"), httpmw.Query("b")), request("/?b=7"), "", httpmw.ErrNoKey},
	{"join, second missing", httpmw.Join(httpmw.Query("a"), httpmw.Query("b")), request("/?a=7"), "", httpmw.ErrNoKey},
	{"join, an empty part", httpmw.Join(httpmw.Query("a"), empty), request("/?a=7"), "", httpmw.ErrNoKey},
	{"join of an empty part", httpmw.Join(empty), request("/"), "", httpmw.ErrNoKey},
}

func TestKeyFuncs(t *testing.T) {
	t.Parallel()
	for _, tt := range keyFuncTests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.key(tt.r)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("got %q, %v; want %q, %v", got, err, tt.want, tt.err)
			}
			if err == nil {
				return
			}
			if !strings.HasPrefix(err.Error(), "ratelimit: ") {
				t.Errorf("the text %q does not say where it comes from", err)
			}
			for _, name := range []string{"ada", "eve", "tenant"} {
				if strings.Contains(err.Error(), name) {
					t.Errorf("%q holds what came in the request", err)
				}
			}
		})
	}
}
