package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"time"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The examples use a sqllock.Memory, which works in one process only. A service
// uses a sqllock.Session on its database.

// userKey is where authenticate puts the user.
type userKey struct{}

// userID returns the authenticated user, on which a KeyFunc should be built.
func userID(ctx context.Context) (string, bool) {
	id, ok := ctx.Value(userKey{}).(string)
	return id, ok
}

// authenticate stands for a service's authentication. It puts the verified user
// into the context.
func authenticate(id string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, id)))
	})
}

// call sends a GET to h and prints the response.
func call(h http.Handler, path string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	fmt.Println(w.Code, http.StatusText(w.Code))
}

// busy returns a handler in which a second request of user-1 meets the first.
func busy(m *httpmw.Middleware) http.Handler {
	inner := authenticate("user-1", m.Handler(http.NotFoundHandler()))
	return authenticate("user-1", m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(w, r) // comes while the first is being served
	})))
}

func ExampleNew() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	perUser := httpmw.New(exports, httpmw.FromContext(userID))

	mux := http.NewServeMux()
	mux.Handle("GET /export", authenticate("user-1", perUser.Handler(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			call(mux, "/export") // the same user asks again meanwhile
			w.WriteHeader(http.StatusOK)
		}))))
	call(mux, "/export")
	// Output:
	// 429 Too Many Requests
	// 200 OK
}

// The response to a rejected request.
func ExampleMiddleware_Handler() {
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), httpmw.FromContext(userID))
	w := httptest.NewRecorder()
	busy(m).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/export", nil))

	fmt.Println(w.Code, "Retry-After:", w.Header().Get("Retry-After"))
	fmt.Println(w.Header().Get("Content-Type"))
	fmt.Print(w.Body)
	// Output:
	// 429 Retry-After: 1
	// application/problem+json
	// {"type":"about:blank","title":"Too Many Requests","status":429,"detail":"The limit \"export\" admits one request at a time, and another request is in progress. Try again in 1 second."}
}

// A handler finds its lock in its context, which ends when the lock is lost.
func ExampleMiddleware_Handler_lock() {
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), httpmw.FromContext(userID))
	export := func(w http.ResponseWriter, r *http.Request) {
		lock, _ := sqllock.FromContext(r.Context())
		if err := lock.Err(); err != nil { // right before what must not be done twice at a time
			http.Error(w, "lost the lock", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Length", "4")
		_, _ = w.Write([]byte("don"))
		_ = lock.Unlock() // before the last byte: then the client can come back at once
		_, _ = w.Write([]byte("e"))
	}
	call(authenticate("user-1", m.Handler(http.HandlerFunc(export))), "/export")
	// Output: 200 OK
}

// The lock is inside of http.TimeoutHandler. A handler that was given up and
// still runs keeps the next one out.
func ExampleMiddleware_Handler_timeout() {
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), httpmw.FromContext(userID))
	running, leave := make(chan struct{}, 100), make(chan struct{})
	inside := authenticate("user-1", m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		running <- struct{}{}
		<-leave // without a look at its context
	})))
	timed := http.TimeoutHandler(inside, time.Millisecond, "timed out")
	for len(running) == 0 { // on a busy machine a request may time out before its handler runs
		timed.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/export", nil))
	}
	call(inside, "/export")
	close(leave)
	// Output:
	// 429 Too Many Requests
}

// With the lock around http.TimeoutHandler, it is released while the handler
// still runs. The next request of the user overlaps with that handler.
func ExampleMiddleware_Handler_incorrect() {
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), httpmw.FromContext(userID))
	running, leave := make(chan struct{}, 2), make(chan struct{})
	timed := http.TimeoutHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		running <- struct{}{}
		<-leave
	}), time.Millisecond, "timed out")

	outside := authenticate("user-1", m.Handler(timed))
	call(outside, "/export")
	call(outside, "/export")
	<-running
	<-running
	fmt.Println("both run")
	close(leave)
	// Output:
	// 503 Service Unavailable
	// 503 Service Unavailable
	// both run
}

// A KeyFunc can look the id up, and exempt some requests from the limit.
func ExampleKeyFunc_bypass() {
	perTenant := func(r *http.Request) (string, error) {
		user, ok := userID(r.Context())
		switch {
		case !ok:
			return "", httpmw.ErrNoKey // 400
		case user == "admin":
			return "", httpmw.ErrBypass // not limited
		}
		return "tenant of " + user, nil // from a directory; if that fails, 500
	}
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), perTenant)
	export := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, locked := sqllock.FromContext(r.Context())
		fmt.Println("locked:", locked)
	}))
	call(authenticate("user-1", export), "/export")
	call(authenticate("admin", export), "/export")
	call(export, "/export")
	// Output:
	// locked: true
	// 200 OK
	// locked: false
	// 200 OK
	// 400 Bad Request
}

// A middleware outside of the authentication finds no key. The log says so, at
// most once a minute.
func ExampleWithLogger() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), httpmw.FromContext(userID), httpmw.WithLogger(log))
	mux := http.NewServeMux()
	mux.Handle("GET /export", m.Handler(authenticate("user-1", http.NotFoundHandler()))) // the wrong way round
	call(mux, "/export")
	call(mux, "/export")
	// Output:
	// level=WARN msg="httpmw: a request has no key: is the middleware inside of the authentication and of the router?" error="ratelimit: no key in the request: not in the context" namespace=export route="GET /export"
	// 400 Bad Request
	// 400 Bad Request
}

// A service can choose the sentence for people.
func ExampleWithBusyText() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	m := httpmw.New(exports, httpmw.FromContext(userID), httpmw.WithBusyText("You can run one export at a time."))
	w := httptest.NewRecorder()
	busy(m).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/export", nil))
	fmt.Print(w.Body)
	// Output: {"type":"about:blank","title":"Too Many Requests","status":429,"detail":"You can run one export at a time. Try again in 1 second."}
}

func ExampleMiddleware_Reject() {
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), httpmw.FromContext(userID))
	for _, err := range []error{ratelimit.ErrBusy, httpmw.ErrNoKey, sqllock.ErrUnavailable} {
		w := httptest.NewRecorder()
		m.Reject(w, httptest.NewRequest(http.MethodGet, "/export", nil), err)
		fmt.Println(w.Code, http.StatusText(w.Code))
	}
	// Output:
	// 429 Too Many Requests
	// 400 Bad Request
	// 503 Service Unavailable
}

// id prints the result of key for a request.
func id(key httpmw.KeyFunc, r *http.Request) {
	id, err := key(r)
	fmt.Printf("%q, %v\n", id, err)
}

// The identity that authentication has verified is the key to prefer.
func ExampleFromContext() {
	key := httpmw.FromContext(userID)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	id(key, r)
	id(key, r.WithContext(context.WithValue(r.Context(), userKey{}, "user-1")))
	// Output:
	// "", ratelimit: no key in the request: not in the context
	// "user-1", <nil>
}

// For a header that a proxy sets, and strips from what clients send.
func ExampleHeader() {
	key := httpmw.Header("X-Verified-Subject")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Add("X-Verified-Subject", "user-1")
	id(key, r)
	r.Header.Add("X-Verified-Subject", "user-2") // a client smuggled one in
	id(key, r)
	// Output:
	// "user-1", <nil>
	// "", ratelimit: bad id: more than one header X-Verified-Subject
}

// A header that the client chooses is a bad key: mallory blocks the victim by
// writing its name.
func ExampleHeader_incorrect() {
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), httpmw.Header("X-User"))
	send := func(h http.Handler) {
		r := httptest.NewRequest(http.MethodGet, "/export", nil)
		r.Header.Set("X-User", "victim")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, http.StatusText(w.Code))
	}
	send(m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { // mallory's, which takes its time
		fmt.Print("the victim's own: ")
		send(m.Handler(http.NotFoundHandler()))
		fmt.Print("mallory's: ")
	})))
	// Output:
	// the victim's own: 429 Too Many Requests
	// mallory's: 200 OK
}

// For a session cookie that the authentication around has verified. Without
// that it is only what the client wrote.
func ExampleCookie() {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: "sid", Value: "s-1"})
	id(httpmw.Cookie("sid"), r)
	// Output: "s-1", <nil>
}

// For a resource to which the handler checks the user's right. It is joined
// with the user, so that no user can block another.
func ExampleQuery() {
	key := httpmw.Join(httpmw.FromContext(userID), httpmw.Query("report"))
	r := httptest.NewRequest(http.MethodGet, "/?report=7", nil)
	id(key, r.WithContext(context.WithValue(r.Context(), userKey{}, "user-1")))
	// Output: "6:user-11:7", <nil>
}

// Inside of the mux the pattern's wildcards have their values.
func ExamplePathValue() {
	perReport := httpmw.Join(httpmw.FromContext(userID), httpmw.PathValue("id")) // of this user: another's path blocks nobody
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "report"), perReport, httpmw.WithConflict())
	mux := http.NewServeMux()
	report := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	mux.Handle("GET /reports/{id}", authenticate("user-1", report))
	call(mux, "/reports/7")
	// Output: 200 OK
}

// Around the mux no pattern has matched yet, and there is no key.
func ExamplePathValue_incorrect() {
	m := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "report"), httpmw.PathValue("id"))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /reports/{id}", func(http.ResponseWriter, *http.Request) {})
	call(m.Handler(mux), "/reports/7")
	// Output: 400 Bad Request
}

func ExampleRemoteIP() {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.1:4711" // the load balancer
	r.Header.Set("X-Forwarded-For", "203.0.113.66, 2001:db8:1:2::3")

	id(httpmw.RemoteIP(), r)
	id(httpmw.RemoteIP(netip.MustParsePrefix("10.0.0.0/8")), r) // what it has added, not what the client wrote
	// Output:
	// "10.0.0.1", <nil>
	// "2001:db8:1:2::/64", <nil>
}

func ExampleJoin() {
	constant := func(s string) httpmw.KeyFunc {
		return func(*http.Request) (string, error) { return s, nil }
	}
	id(httpmw.Join(constant("a:b"), constant("c")), nil)
	id(httpmw.Join(constant("a"), constant("b:c")), nil)
	// Output:
	// "3:a:b1:c", <nil>
	// "1:a3:b:c", <nil>
}

// A KeyFunc of a service returns ErrNoKey if there is no id.
func ExampleKeyFunc() {
	key := httpmw.KeyFunc(func(r *http.Request) (string, error) {
		if user, _, ok := r.BasicAuth(); ok { // which authentication has checked
			return user, nil
		}
		return "", fmt.Errorf("%w: no basic auth", httpmw.ErrNoKey)
	})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	id(key, r)
	r.SetBasicAuth("user-1", "password")
	id(key, r)
	// Output:
	// "", ratelimit: no key in the request: no basic auth
	// "user-1", <nil>
}

func ExampleWithConflict() {
	payments := ratelimit.OneAtATime(sqllock.NewMemory(), "payment")
	call(busy(httpmw.New(payments, httpmw.FromContext(userID), httpmw.WithConflict())), "/pay")
	// Output: 409 Conflict
}

func ExampleWithRejectHandler() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	m := httpmw.New(exports, httpmw.FromContext(userID), httpmw.WithRejectHandler(
		func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, ratelimit.ErrBusy) {
				http.Error(w, "Your last export is still running.", http.StatusTooManyRequests)
			} // else write nothing, for the Middleware's own response
		}))
	w := httptest.NewRecorder()
	busy(m).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/export", nil))
	fmt.Println(w.Code, "Retry-After:", w.Header().Get("Retry-After"))
	fmt.Print(w.Body)
	call(m.Handler(http.NotFoundHandler()), "/export") // nobody
	// Output:
	// 429 Retry-After: 1
	// Your last export is still running.
	// 400 Bad Request
}

func ExampleWithProblemType() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	m := httpmw.New(exports, httpmw.FromContext(userID), httpmw.WithProblemType("https://api.example/problems/busy"))
	w := httptest.NewRecorder()
	busy(m).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/export", nil))
	fmt.Print(w.Body)
	// Output: {"type":"https://api.example/problems/busy","title":"Another request is in progress","status":429,"detail":"The limit \"export\" admits one request at a time, and another request is in progress. Try again in 1 second."}
}

func ExampleWithRateLimitHeaders() {
	exports := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	m := httpmw.New(exports, httpmw.FromContext(userID), httpmw.WithRateLimitHeaders())
	w := httptest.NewRecorder()
	busy(m).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/export", nil))
	fmt.Println(w.Header().Get("RateLimit-Policy"))
	fmt.Println(w.Header().Get("RateLimit"))
	// Output:
	// "export";q=1;qu="concurrent-requests"
	// "export";r=0;t=1
}
