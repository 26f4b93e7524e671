package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
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
func empty(*http.Request) (string, error) { return "", nil }

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
			if !strings.HasPrefix(err.Error(), "httpmw: ") {
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

// The client can correct the errors of the package's own KeyFuncs.
func TestKeyErrorsAreBadRequests(t *testing.T) {
	t.Parallel()
	for _, tt := range keyFuncTests {
		if tt.err == nil {
			continue
		}
		m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), tt.key)
		w := httptest.NewRecorder()
		m.Handler(http.NotFoundHandler()).ServeHTTP(w, tt.r)
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: status %d, want 400", tt.name, w.Code)
		}
	}
}

// The error of a KeyFunc decides on the response.
func TestKeyFuncFails(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name  string
		err   error
		ctx   context.Context // of the request
		want  int
		retry bool
	}{
		{"no key", httpmw.ErrNoKey, t.Context(), http.StatusBadRequest, false},
		{"bad id", fmt.Errorf("looking up: %w", ratelimit.ErrBadID), t.Context(), http.StatusBadRequest, false},
		{"away", fmt.Errorf("looking up: %w", sqllock.ErrUnavailable), t.Context(), http.StatusServiceUnavailable, true},
		{"its own", errors.New("dial tcp: refused"), t.Context(), http.StatusInternalServerError, false},
		{"its own, with a response", fmt.Errorf("looking up: %w", teapotError()), t.Context(), http.StatusInternalServerError, false},
		{"its own deadline", context.DeadlineExceeded, t.Context(), http.StatusInternalServerError, false},
		{"a limit of its own is full", &ratelimit.BusyError{Namespace: "directory"}, t.Context(), http.StatusInternalServerError, false},
		{"the client's end", fmt.Errorf("looking up: %w", context.Canceled), ended, http.StatusServiceUnavailable, true},
		{"bypass", httpmw.ErrBypass, t.Context(), http.StatusTeapot, false},
		{"bypass, wrapped", fmt.Errorf("an admin: %w", httpmw.ErrBypass), t.Context(), http.StatusTeapot, false},
	}
	for _, tt := range tests {
		key := func(*http.Request) (string, error) { return "", tt.err }
		for name, key := range map[string]httpmw.KeyFunc{"": key, ", joined": httpmw.Join(key)} {
			t.Run(tt.name+name, func(t *testing.T) {
				t.Parallel()
				l := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
				h := httpmw.New(l, key).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, ok := sqllock.FromContext(r.Context()); ok {
						t.Error("a request that is not limited has a lock")
					}
					w.WriteHeader(http.StatusTeapot)
				}))
				w := httptest.NewRecorder()
				h.ServeHTTP(w, request("/").WithContext(tt.ctx))
				if retry := w.Header().Get("Retry-After") != ""; w.Code != tt.want || retry != tt.retry {
					t.Errorf("status %d, Retry-After: %v; want %d, %v", w.Code, retry, tt.want, tt.retry)
				}
			})
		}
	}
}

// Requests that bypass the limit run at the same time, and the Observer gets no
// event.
func TestBypass(t *testing.T) {
	t.Parallel()
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
		t.Errorf("the Observer was told of a request that is not limited: %+v", e)
	}))
	m := httpmw.New(l, func(*http.Request) (string, error) { return "", httpmw.ErrBypass })
	for range 3 {
		lock, err := m.Acquire(request("/"))
		if lock != nil || err != nil {
			t.Errorf("got %v, %v; want no lock and no error", lock, err)
		}
		defer lock.Unlock()
	}
}

// The error of Acquire matches that of the KeyFunc.
func TestKeyErrorIsWrapped(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	var observed error
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export",
		ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) { observed = e.Err }))
	_, err := httpmw.New(l, func(*http.Request) (string, error) { return "", mine }).Acquire(request("/"))
	if !errors.Is(err, mine) || !errors.Is(observed, mine) || err.Error() != "mine" {
		t.Errorf("got %v, the Observer %v; want mine", err, observed)
	}
}

// Different parts never join to the same id. An empty part is an error.
func FuzzJoin(f *testing.F) {
	for _, parts := range [][4]string{
		{"a:b", "c", "a", "b:c"}, {"1:a", "b", "1", "a1:b"}, {"a", "a", "a", "a"}, {"1", "1:1", "1:1", "1"},
		{"", "a", "a", ""}, {"12", "3", "1", "23"},
	} {
		f.Add(parts[0], parts[1], parts[2], parts[3])
	}
	constant := func(s string) httpmw.KeyFunc {
		return func(*http.Request) (string, error) { return s, nil }
	}
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		one, err := httpmw.Join(constant(a), constant(b))(nil)
		if none := a == "" || b == ""; none != errors.Is(err, httpmw.ErrNoKey) {
			t.Errorf("(%q, %q): %v", a, b, err)
		}
		if a == "" || b == "" || c == "" || d == "" {
			return
		}
		two, _ := httpmw.Join(constant(c), constant(d))(nil)
		if (one == two) != (a == c && b == d) {
			t.Errorf("(%q, %q) and (%q, %q) give %q and %q", a, b, c, d, one, two)
		}
		nested, _ := httpmw.Join(httpmw.Join(constant(a), constant(b)), constant(c))(nil)
		flat, _ := httpmw.Join(httpmw.Join(constant(c), constant(d)), constant(c))(nil)
		if (nested == flat) != (a == c && b == d) {
			t.Errorf("nested: (%q, %q) and (%q, %q) give %q and %q", a, b, c, d, nested, flat)
		}
	})
}
