package caddy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy/forwardauth"

	_ "github.com/latchkey-go/latchkey/examples/gateway/caddy"
	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// There is one Caddy in a process, so these tests do not run in parallel.
func TestMain(m *testing.M) {
	bound.Lengthen()
	os.Exit(pgtest.Main(m))
}

// adapt returns the configuration of a Caddyfile.
func adapt(t *testing.T, caddyfile string) ([]byte, error) {
	t.Helper()
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), nil)
	return config, err
}

// load has Caddy take a Caddyfile over. It is stopped at the end of the test.
func load(t *testing.T, caddyfile string) {
	t.Helper()
	config, err := adapt(t, caddyfile)
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(config, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// A site is where Caddy serves: a socket in the file system, which no other
// program can take.
type site struct {
	socket string
	client *http.Client
}

func newSite(t *testing.T) *site {
	s := &site{socket: filepath.Join(t.TempDir(), "caddy")}
	s.client = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.socket)
		},
	}}
	return s
}

// file returns a Caddyfile with the limit one for each user, and more directives.
func (s *site) file(databaseURL, upstream, more string) string {
	return fmt.Sprintf(`{
	admin off
	auto_https off
	persist_config off
	grace_period 1h
}
http://caddy {
	bind unix/%s
	latchkey {
		database "%s"
		level caddy-user 1 {http.request.header.X-User}
		level caddy-all 50 everyone
	}
	%s
	reverse_proxy %s {
		stream_close_delay 1h
	}
}
`, s.socket, databaseURL, more, upstream)
}

// An upstream streams "1", then waits to be told to end.
type upstream struct {
	*httptest.Server
	inside chan *http.Request
	leave  chan struct{}
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{inside: make(chan *http.Request, 10), leave: make(chan struct{})}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "1")
			_ = http.NewResponseController(w).Flush()
		}
		u.inside <- r
		select {
		case <-u.leave:
		case <-r.Context().Done():
		case <-t.Context().Done():
		}
	}))
	t.Cleanup(u.Server.Close)
	return u
}

// get sends a request of a user.
func (s *site) get(t *testing.T, path, user string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://caddy"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		r.Header.Set("X-User", user)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// begin begins a stream, whose first byte is there.
func (s *site) begin(t *testing.T, u *upstream, user string) *http.Response {
	t.Helper()
	resp := s.get(t, "/stream", user)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d, want 200", resp.StatusCode)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	httptesting.Receive(t, u.inside, "a request at the upstream")
	return resp
}

func wantProblem(t *testing.T, resp *http.Response, status int) {
	t.Helper()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != status || resp.Header.Get("Content-Type") != "application/problem+json" ||
		resp.Header.Get("Retry-After") == "" || !strings.HasSuffix(strings.TrimSpace(string(text)), "}") {
		t.Errorf("status %d, header %v, body %s; want %d, a problem and Retry-After", resp.StatusCode, resp.Header, text, status)
	}
}

// sessions counts the server processes of our Sessions.
const sessions = "SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"

// A key has its place while its stream lives, also across a reload. A client that
// leaves frees it at once. A request that is authenticated while the configuration
// changes reaches its limits late. It does not wait for the streams of the old
// configuration.
func TestReload(t *testing.T) {
	dsn, u, at := pgtest.Database(t), newUpstream(t), newSite(t)
	asked, answer := make(chan bool, 10), make(chan struct{})
	auth := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-User") == "bob" {
			asked <- true
			<-answer
		}
	}))
	defer auth.Close()
	forward := "forward_auth " + auth.Listener.Addr().String() + " {\n\t\turi /\n\t}"
	load(t, at.file(dsn, u.Listener.Addr().String(), forward))
	first := at.begin(t, u, "ada")
	late := make(chan *http.Response, 1)
	go func() { late <- at.get(t, "/stream", "bob") }()
	httptesting.Receive(t, asked, "a request for authentication")
	load(t, at.file(dsn, u.Listener.Addr().String(), "header X-Version 2"))
	close(answer)
	if resp := httptesting.Receive(t, late, "a response"); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, want 200", resp.StatusCode)
	}
	httptesting.Receive(t, u.inside, "a request at the upstream")
	for _, user := range []string{"ada", "bob"} {
		wantProblem(t, at.get(t, "/", user), http.StatusTooManyRequests)
	}
	first.Body.Close()
	lockertest.Eventually(t, "the place is free", func() bool {
		first = at.get(t, "/stream", "ada")
		return first.StatusCode != http.StatusTooManyRequests
	})
	if first.StatusCode != http.StatusOK || first.Header.Get("X-Version") != "2" {
		t.Errorf("status %d, header %v, want 200 of the new configuration", first.StatusCode, first.Header)
	}
}

// A configuration without the limits does not end the streams of the one before.
// When the last has ended, the Session is closed.
func TestSessionOutlivesItsConfiguration(t *testing.T) {
	dsn, u, at := pgtest.Database(t), newUpstream(t), newSite(t)
	load(t, at.file(dsn, u.Listener.Addr().String(), ""))
	stream := at.begin(t, u, "ada")
	db := dbtest.Open(t, "pgx", dsn)
	if n := dbtest.Number(t, db, sessions); n != 1 {
		t.Fatalf("%d server processes hold locks, want 1", n)
	}
	load(t, "{\n\tadmin off\n\tpersist_config off\n}\n")
	if n := dbtest.Number(t, db, sessions); n != 1 {
		t.Errorf("%d server processes hold locks after the change, want 1", n)
	}
	close(u.leave)
	if rest, err := io.ReadAll(stream.Body); len(rest) > 0 || err != nil {
		t.Errorf("the stream ends with %q, %v", rest, err)
	}
	lockertest.Eventually(t, "the connections are closed", func() bool {
		return dbtest.Number(t, db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()") == 0
	})
}

// The loss of a lock aborts a stream. A request whose response has not begun gets
// one 503, which Caddy's own error routes do not follow.
func TestLostLock(t *testing.T) {
	dsn, u, at := pgtest.Database(t), newUpstream(t), newSite(t)
	load(t, at.file(dsn, u.Listener.Addr().String(), "handle_errors {\n\t\trespond \"an error route\"\n\t}"))
	stream := at.begin(t, u, "ada")
	waiting := make(chan *http.Response, 1)
	go func() { waiting <- at.get(t, "/", "bob") }()
	httptesting.Receive(t, u.inside, "a request at the upstream")
	httptesting.Terminate(t, dbtest.Open(t, "pgx", dsn))
	if rest, err := io.ReadAll(stream.Body); err == nil {
		t.Errorf("the stream ends cleanly after %q", rest)
	}
	wantProblem(t, httptesting.Receive(t, waiting, "a response"), http.StatusServiceUnavailable)
}

// Without a key nothing is admitted, and without a database neither.
func TestClosed(t *testing.T) {
	u, at := newUpstream(t), newSite(t)
	t.Setenv("LATCHKEY_TEST_CADDY", "postgres://nobody@127.0.0.1:1/none")
	load(t, at.file("{env.LATCHKEY_TEST_CADDY}", u.Listener.Addr().String(), ""))
	if resp := at.get(t, "/stream", ""); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("without a key: status %d, want 400", resp.StatusCode)
	}
	wantProblem(t, at.get(t, "/", "ada"), http.StatusServiceUnavailable)
	if len(u.inside) > 0 {
		t.Error("a request has reached the upstream")
	}
}

// An empty placeholder is no key, whatever text is around it. Different values
// of several placeholders are different keys.
func TestKeys(t *testing.T) {
	dsn, u, at := pgtest.Database(t), newUpstream(t), newSite(t)
	const user, both = "{http.request.header.X-User}", `"{http.request.uri.query.a}/{http.request.uri.query.b}"`
	load(t, strings.Replace(at.file(dsn, u.URL, ""), user, `"user:`+user+`"`, 1))
	if resp := at.get(t, "/stream", ""); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("without a user: status %d, want 400", resp.StatusCode)
	}
	load(t, strings.Replace(at.file(dsn, u.URL, ""), user, both, 1))
	for _, tt := range []struct {
		query string
		want  int
	}{
		{"a=a%2Fb&b=c", http.StatusOK},
		{"a=a&b=b%2Fc", http.StatusOK},
		{"a=a%2Fb&b=c", http.StatusTooManyRequests},
		{"a=a", http.StatusBadRequest},
	} {
		resp := at.get(t, "/stream?"+tt.query, "")
		if resp.StatusCode != tt.want {
			t.Errorf("%s: status %d, want %d", tt.query, resp.StatusCode, tt.want)
		}
		if resp.StatusCode == http.StatusOK {
			httptesting.Receive(t, u.inside, "a request at the upstream")
		}
	}
	close(u.leave)
}

// The Caddyfile of the example is one.
func TestCaddyfile(t *testing.T) {
	text, err := os.ReadFile("Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	config, err := adapt(t, string(text))
	if err != nil || strings.Index(string(config), `"authentication"`) > strings.Index(string(config), `"latchkey"`) {
		t.Errorf("%v, %s; want the limits behind authentication", err, config)
	}
}

// Each mistake in a Caddyfile has an error that says what to write.
func TestMistakes(t *testing.T) {
	const database = "database postgres://localhost/x\n"
	tests := []struct{ name, directive, want string }{
		{"no database", "latchkey {\nlevel a 1 {header.x}\n}", "no database"},
		{"two databases", "latchkey {\n" + database + database + "}", "one database"},
		{"no level", "latchkey {\n" + database + "}", "no level"},
		{"no key", "latchkey {\n" + database + "level a 1\n}", "<name> <limit> <key>"},
		{"empty key", "latchkey {\n" + database + "level a 1 \"\"\n}", "no key"},
		{"word for a limit", "latchkey {\n" + database + "level a one x\n}", "not a number"},
		{"limit of zero", "latchkey {\n" + database + "level a 0 x\n}", "the limit is 0"},
		{"huge limit", "latchkey {\n" + database + "level a 100000 x\n}", "not 1 to 1000"},
		{"colon in a name", "latchkey {\n" + database + "level a:b 1 x\n}", "no colon"},
		{"one name twice", "latchkey {\n" + database + "level a 1 x\nlevel a 2 y\n}", "two levels"},
		{"unknown option", "latchkey {\nrate 5\n}", "no option \"rate\""},
		{"argument", "latchkey 5", "argument"},
	}
	for _, tt := range tests {
		_, err := adapt(t, "http://127.0.0.1 {\n"+tt.directive+"\nrespond ok\n}\n")
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
	}
}

// What only the load can find does not take the configuration over.
func TestMistakesOfALoad(t *testing.T) {
	for name, databaseURL := range map[string]string{
		"unset variable": "{env.LATCHKEY_TEST_NOTHING}",
		"not a URL":      "postgres://user@host:port/x",
	} {
		config, err := adapt(t, newSite(t).file(databaseURL, "127.0.0.1:1", ""))
		if err != nil {
			t.Fatal(err)
		}
		err = caddy.Load(config, true)
		if err == nil || !strings.Contains(err.Error(), "latchkey") {
			t.Errorf("%s: %v; want an error of latchkey", name, err)
		}
		if err == nil {
			_ = caddy.Stop()
		}
	}
}
