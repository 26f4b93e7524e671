package routers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// newLimit is one export at a time for each user. A service uses a
// sqllock.Session on its database; a Memory works in one process only.
func newLimit() *httpmw.Middleware {
	return httpmw.New(ratelimit.OneAtATime(sqllock.NewMemory(), "export"), httpmw.FromContext(userID))
}

// userKey is where authentication puts the user it has verified: the key, since
// a client cannot choose it.
type userKey struct{}

func userID(ctx context.Context) (string, bool) {
	id, ok := ctx.Value(userKey{}).(string)
	return id, ok
}

// authenticate stands for a service's authentication.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, _, ok := r.BasicAuth(); ok {
			r = r.WithContext(context.WithValue(r.Context(), userKey{}, user))
		}
		next.ServeHTTP(w, r)
	})
}

// export is the work: while it runs, the same user and another one ask for the
// same.
func export(w http.ResponseWriter, r *http.Request) {
	_, locked := sqllock.FromContext(r.Context())
	user, _ := userID(r.Context())
	fmt.Printf("%s is served under a lock: %v\n", user, locked)
	if user == "ada" {
		url := "http://" + r.Host + r.URL.Path
		get(url, "ada")
		get(url, "grace")
	}
	_, _ = io.WriteString(w, "exported\n")
}

// run serves h on a socket. It sends a request of ada and one without a user.
func run(h http.Handler) {
	s := httptest.NewServer(authenticate(h))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	url := s.URL + "/export"
	get(url, "ada")
	get(url, "")
}

// get sends a request of a user, reads the whole response and prints its status.
func get(url, user string) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		panic(err)
	}
	if user == "" {
		user = "anonymous"
	} else {
		r.SetBasicAuth(user, "")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	if resp.StatusCode == http.StatusOK && string(body) != "exported\n" {
		panic("the answer is not the handler's alone: " + string(body))
	}
	fmt.Printf("%s gets %d, Retry-After %q\n", user, resp.StatusCode, resp.Header.Get("Retry-After"))
}
