package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// While a request of a user is served, every instance rejects the second one.
// After it, the next is admitted.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	for _, fleet := range lockertest.Instances {
		for _, p := range httptesting.Protocols {
			t.Run(fleet.Name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				a, b := fleet.New(t)
				g := httptesting.NewGate(t)
				here := p.Serve(t, limited(a).Handler(g))
				there := p.Serve(t, limited(b).Handler(g))

				first := start(t, here, here.URL)
				r := httptesting.Receive(t, g.Inside, "first request")
				if r.ProtoMajor != p.Major {
					t.Errorf("the server speaks %s, want %s", r.Proto, p.Name)
				}
				for _, s := range []*httptest.Server{here, there} {
					r := get(t, s)
					r.Want(t, http.StatusTooManyRequests)
					if p := httptesting.WantProblem(t, r.Header, r.Text, r.StatusCode); !strings.HasPrefix(p.Detail, `The limit "export" admits one`) {
						t.Errorf("detail %s, want it to name the full limit", p.Detail)
					}
				}
				close(g.Leave)
				httptesting.Receive(t, first, "first response").Want(t, http.StatusOK)
				get(t, there).Want(t, http.StatusOK)
			})
		}
	}
}

// The handler's context carries the lock and the request's values, and ends
// with the request.
func TestContext(t *testing.T) {
	t.Parallel()
	type key struct{}
	var inner *http.Request
	r := request("/", user+": ada")
	serve(limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner = r
		lock, ok := sqllock.FromContext(r.Context())
		if !ok || lock.Err() != nil {
			t.Errorf("lock %v, %v; want one that is held", ok, lock.Err())
		}
		if r.Context().Value(key{}) != "v" || r.Context().Err() != nil {
			t.Errorf("value %v, %v; want v and a context that lives", r.Context().Value(key{}), r.Context().Err())
		}
	})), r.WithContext(context.WithValue(r.Context(), key{}, "v")))
	if inner.Context().Err() == nil {
		t.Error("the context outlives its request")
	}
	if lock, _ := sqllock.FromContext(inner.Context()); !errors.Is(lock.Err(), sqllock.ErrReleased) {
		t.Errorf("the lock has %v, want ErrReleased", lock.Err())
	}
}

// What the handler finds is visible outside, also after a panic: the pattern of a
// mux inside, and the form, whose files net/http removes.
func TestCarryBack(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /export/{id}", func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
		panic("broken")
	})
	const form = "--b\r\nContent-Disposition: form-data; name=\"upload\"; filename=\"f\"\r\n\r\ncontent\r\n--b--\r\n"
	r := httptest.NewRequest(http.MethodPost, "/export/1", strings.NewReader(form))
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	r.Header.Set(user, "ada")
	defer func() {
		if p := recover(); p != "broken" {
			t.Errorf("recovered %v, want the value of the panic", p)
		}
		if r.Pattern != "POST /export/{id}" {
			t.Errorf("pattern %q, want the one that matched", r.Pattern)
		}
		if r.MultipartForm == nil || len(r.MultipartForm.File["upload"]) != 1 {
			t.Fatalf("the form is %v, want one with a file", r.MultipartForm)
		}
		_ = r.MultipartForm.RemoveAll()
	}()
	serve(limited(sqllock.NewMemory()).Handler(mux), r)
}

func TestMisusePanics(t *testing.T) {
	t.Parallel()
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	key := httpmw.Header(user)
	tests := map[string]func(){
		"nil limiter":  func() { httpmw.New(nil, key) },
		"nil key":      func() { httpmw.New(l, nil) },
		"no levels":    func() { httpmw.NewStack(nil) },
		"nil in level": func() { httpmw.NewStack([]httpmw.Level{{Limiter: l, Key: key}, {Key: key}}) },
		"no key there": func() { httpmw.NewStack([]httpmw.Level{{Limiter: l, Key: key}, {Limiter: l}}) },
		"nil handler":  func() { httpmw.New(l, key).Handler(nil) },
		"nil reject":   func() { httpmw.WithRejectHandler(nil) },
		"nil log":      func() { httpmw.WithLogger(nil) },
		"empty text":   func() { httpmw.WithBusyText("") },
		"empty type":   func() { httpmw.WithProblemType("") },
		"Header":       func() { httpmw.Header("") },
		"Cookie":       func() { httpmw.Cookie("") },
		"Query":        func() { httpmw.Query("") },
		"PathValue":    func() { httpmw.PathValue("") },
		"FromContext":  func() { httpmw.FromContext(nil) },
		"Join nothing": func() { httpmw.Join() },
		"Join nil":     func() { httpmw.Join(key, nil) },
		"RemoteIP":     func() { httpmw.RemoteIP(netipZero) },
	}
	for name, misuse := range tests {
		t.Run(name, func(t *testing.T) { httptesting.WantPanic(t, "httpmw", "", misuse) })
	}
}

// http.TimeoutHandler inside of the Middleware returns while its handler runs.
// The log says so, wherever it is inside. It says nothing about one outside.
func TestTimeoutHandlerInsideIsLogged(t *testing.T) {
	t.Parallel()
	// One that ends with its own context may still be in time.
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-t.Context().Done() })
	timed := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Millisecond, "") }
	mux := http.NewServeMux()
	mux.Handle("/", timed(slow))
	var log httptesting.Logbook
	limited := func() *httpmw.Middleware { return limited(sqllock.NewMemory(), httpmw.WithLogger(log.Logger())) }
	m := limited()
	for _, tt := range []struct {
		name  string
		h     http.Handler
		lines int
	}{
		{"outside", timed(limited().Handler(slow)), 0}, // it responds before the lock is back
		{"none", limited().Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })), 0},
		{"inside", limited().Handler(timed(slow)), 1},
		{"inside of a mux", m.Handler(mux), 1},
		{"again", m.Handler(mux), 0}, // once a minute
	} {
		if w := serve(tt.h, request("/", user+": ada")); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: status %d, want 503", tt.name, w.Code)
		}
		log.Want(t, tt.name, tt.lines, "http.TimeoutHandler", "namespace=export")
	}
}
