package httpmw_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// While a request of a user is served, every instance rejects the second one.
// It admits a request of another user.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			locks, g := sqllock.NewMemory(), httptesting.NewGate(t)
			here := p.Serve(t, limited(locks).Handler(g))
			there := p.Serve(t, limited(locks).Handler(g))

			first := start(t, here)
			r := httptesting.Receive(t, g.Inside, "first request")
			if r.ProtoMajor != p.Major {
				t.Errorf("the server speaks %s, want %s", r.Proto, p.Name)
			}
			get(t, here).Want(t, http.StatusTooManyRequests)
			get(t, there).Want(t, http.StatusTooManyRequests)

			close(g.Leave)
			httptesting.Receive(t, first, "first response").Want(t, http.StatusOK)
			get(t, there).Want(t, http.StatusOK)
		})
	}
}

// The handler's context carries the lock and the request's values, and ends
// with the request.
func TestContext(t *testing.T) {
	t.Parallel()
	type key struct{}
	var inner *http.Request
	m := limited(sqllock.NewMemory())
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner = r
		lock, ok := sqllock.FromContext(r.Context())
		if !ok || lock.Err() != nil {
			t.Errorf("lock %v, %v; want one that is held", ok, lock.Err())
		}
		if r.Context().Value(key{}) != "v" || r.Context().Err() != nil {
			t.Errorf("value %v, %v; want v and a context that lives", r.Context().Value(key{}), r.Context().Err())
		}
	}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set(user, "ada")
	h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), key{}, "v")))
	if inner.Context().Err() == nil {
		t.Error("the context outlives its request")
	}
	if lock, _ := sqllock.FromContext(inner.Context()); !errors.Is(lock.Err(), sqllock.ErrReleased) {
		t.Errorf("the lock has %v, want ErrReleased", lock.Err())
	}
}

// A request may be admitted without a lock: by WithFailOpen, or in a dry run.
func TestWithoutLock(t *testing.T) {
	t.Parallel()
	away := locker{err: sqllock.ErrUnavailable}
	tests := []struct {
		name string
		l    *ratelimit.Limiter
		user string
		want int
	}{
		{"fail open", ratelimit.OneAtATime(away, "export", ratelimit.WithFailOpen()), "ada", http.StatusOK},
		{"fail open, no key", ratelimit.OneAtATime(away, "export", ratelimit.WithFailOpen()), "", http.StatusBadRequest},
		{"dry run", ratelimit.OneAtATime(locker{err: sqllock.ErrHeld}, "export", ratelimit.WithDryRun()), "ada", http.StatusOK},
		{"dry run, no key", ratelimit.OneAtATime(away, "export", ratelimit.WithDryRun()), "", http.StatusOK},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := httpmw.New(tt.l, httpmw.Header(user)).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if lock, ok := sqllock.FromContext(r.Context()); ok {
					t.Errorf("the context carries a lock: %v", lock)
				}
				_, _ = io.WriteString(w, "served")
			}))
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set(user, tt.user)
			h.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("status %d, want %d", w.Code, tt.want)
			}
		})
	}
}

// A waiting request is admitted when the one before it ends.
func TestWait(t *testing.T) {
	t.Parallel()
	g := httptesting.NewGate(t)
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithWait(time.Minute, 1))
	s := httptesting.Serve(t, httpmw.New(l, httpmw.Header(user)).Handler(g))
	first := start(t, s)
	httptesting.Receive(t, g.Inside, "first request")
	second := start(t, s)
	g.Leave <- struct{}{}
	httptesting.Receive(t, first, "first response").Want(t, http.StatusOK)
	httptesting.Receive(t, g.Inside, "second request")
	g.Leave <- struct{}{}
	httptesting.Receive(t, second, "second response").Want(t, http.StatusOK)
}

// The server and handlers around find what the handler leaves in its copy of
// the request: the files of a form, which the server removes, and the pattern.
func TestCarryBack(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /export/{id}", func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(0); err != nil {
			t.Error(err)
		}
	})
	const form = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\nx\r\n--b--\r\n"
	r := httptest.NewRequest(http.MethodPost, "/export/1", strings.NewReader(form))
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	r.Header.Set(user, "ada")
	w := httptest.NewRecorder()
	limited(sqllock.NewMemory()).Handler(mux).ServeHTTP(w, r)
	if r.MultipartForm == nil {
		t.Fatal("the server does not see the form, and would leave its files behind")
	}
	if err := r.MultipartForm.RemoveAll(); err != nil {
		t.Error(err)
	}
	if r.Pattern != "POST /export/{id}" {
		t.Errorf("pattern %q, want the one that matched", r.Pattern)
	}
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "httpmw: ") {
					t.Errorf("panic %q, want one that begins with the package's name", text)
				}
			}()
			misuse()
		})
	}
}
