package routers

import (
	"log/slog"
	"net/http/httptest"
	"os"

	"github.com/go-chi/chi/v5"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// chi's middleware is net/http's.
func Example_chi() {
	limit := newLimit()

	router := chi.NewRouter()
	router.With(limit.Handler).Get("/export", export)
	run(router)
	// Output:
	// ada is served under a lock: true
	// ada gets 429, Retry-After "1"
	// grace is served under a lock: true
	// grace gets 200, Retry-After ""
	// ada gets 200, Retry-After ""
	// anonymous gets 400, Retry-After ""
}

// chi sets r.PathValue when a pattern has matched: for an id in the path, give
// the Middleware to With, not to Use.
func Example_chi_pathValue() {
	limit := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "report"), httpmw.PathValue("id"))

	router := chi.NewRouter()
	router.With(limit.Handler).Get("/reports/{id}", export)
	s := httptest.NewServer(router)
	defer s.Close()
	get(s.URL+"/reports/7", "")
	// Output:
	//  is served under a lock: true
	// anonymous gets 200, Retry-After ""
}

// Use comes before the pattern has matched: there never is a key, and the log says
// so.
func Example_chi_pathValue_incorrect() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	limit := httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "report"), httpmw.PathValue("id"), httpmw.WithLogger(log))

	router := chi.NewRouter()
	router.Use(limit.Handler)
	router.Get("/reports/{id}", export)
	s := httptest.NewServer(router)
	defer s.Close()
	get(s.URL+"/reports/7", "")
	get(s.URL+"/reports/8", "")
	// Output:
	// level=WARN msg="httpmw: a request has no key: is the middleware inside of the authentication and of the router?" error="ratelimit: no key in the request: no path value id: is the middleware inside of the mux?" namespace=report
	// anonymous gets 400, Retry-After ""
	// anonymous gets 400, Retry-After ""
}
