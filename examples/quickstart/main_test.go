package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/examples/internal/fleet"
	"github.com/latchkey-go/latchkey/examples/quickstart/exportpb"
	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	fleet.Main(main)
	os.Exit(leaktest.Check(mariadbtest.Close(pgtest.Main(m))))
}

// urls are the kinds of DATABASE_URL.
var urls = map[string]func(*testing.T) string{
	"SQLite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "shop.db") },
	"PostgreSQL": func(t *testing.T) string { return pgtest.Database(t) },
	"MariaDB": func(t *testing.T) string {
		return "mysql://" + mariadbtest.Database(t)
	},
}

// start starts an instance in which an export takes an hour: a test ends it.
func start(t *testing.T, f *fleet.Fleet) *fleet.Instance {
	t.Helper()
	return f.MustStart(t, "-http", "127.0.0.1:0", "-grpc", "127.0.0.1:0", "-takes", "1h")
}

// call returns the status of the response and its body, or 0. Each call has a
// connection of its own: an instance that stops would wait for an unused one.
func call(ctx context.Context, i *fleet.Instance, method, path, token string) (code int, body string) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+i.Address("http")+path, http.NoBody)
	if err != nil {
		return 0, ""
	}
	r.Header.Set("Authorization", token)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

// export begins alice's export on i, and returns when it runs.
func export(t *testing.T, i *fleet.Instance) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		call(ctx, i, http.MethodPost, "/exports", "Bearer alice-token")
	}()
	leave = func() { cancel(); <-left }
	t.Cleanup(leave)
	lockertest.Eventually(t, "alice has an export", func() bool { return active(t, i) })
	return leave
}

func active(t *testing.T, i *fleet.Instance) bool {
	_, metrics := call(t.Context(), i, http.MethodGet, "/metrics", "")
	return strings.Contains(metrics, `latchkey_limiter_active_leases{limiter="quickstart-export"} 1`)
}

// While alice has an export, each instance rejects hers over HTTP and gRPC, and
// admits nobody without a token. What an operator looks at shows the export, and
// not whose it is.
func TestServe(t *testing.T) {
	for name, url := range urls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fleet.Test(t, "DATABASE_URL="+url(t))
			instances := []*fleet.Instance{start(t, f), start(t, f)}
			leave := export(t, instances[0])
			for _, i := range instances {
				for token, want := range map[string]int{"Bearer alice-token": http.StatusTooManyRequests, "Bearer -token": http.StatusUnauthorized, "": http.StatusUnauthorized} {
					if got, _ := call(t.Context(), i, http.MethodPost, "/exports", token); got != want {
						t.Errorf("instance %d, token %q: %d, want %d", i.Number, token, got, want)
					}
				}
				for token, want := range map[string]codes.Code{"Bearer alice-token": codes.ResourceExhausted, "": codes.Unauthenticated} {
					if got := callExport(t, i, token); got != want {
						t.Errorf("instance %d, token %q: %v, want %v", i.Number, token, got, want)
					}
				}
			}
			for path, want := range map[string]string{
				"/locks/":     "quickstart-export",
				"/readyz":     "",
				"/metrics":    `latchkey_session_locks{session="main"} 1`,
				"/debug/vars": `"Active":1`,
			} {
				code, body := call(t.Context(), instances[0], http.MethodGet, path, "")
				if code != http.StatusOK || !strings.Contains(body, want) || strings.Contains(body, "alice") {
					t.Errorf("%s: %d, want %q and no id in\n%s", path, code, want, body)
				}
			}
			leave()
			lockertest.Eventually(t, "her export has ended with her request", func() bool { return !active(t, instances[0]) })

			viewer, err := http.Get("http://" + instances[0].Address("http") + "/locks/events")
			if err != nil {
				t.Fatal(err)
			}
			defer viewer.Body.Close()
			if err := f.Stop(); err != nil {
				t.Error(err)
			}
			if _, err := io.Copy(io.Discard, viewer.Body); err != nil {
				t.Errorf("the page was cut off, not ended: %v", err)
			}
		})
	}
}

func callExport(t *testing.T, i *fleet.Instance, token string) codes.Code {
	t.Helper()
	conn, err := grpc.NewClient(i.Address("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", token)
	_, err = exportpb.NewExportServiceClient(conn).Export(ctx, &exportpb.ExportRequest{})
	return status.Code(err)
}

// A DATABASE_URL that is not understood is an error that does not show it.
func TestUnknownDatabase(t *testing.T) {
	for _, url := range []string{"secret", "redis://ann:secret@db.example/0", "mysql://ann:secret@db.example:port/shop", "mysql://ann@tcp(db.example)/shop?parseTime=secret"} {
		out, err := fleet.Test(t, "DATABASE_URL="+url).Run()
		if err == nil || !strings.Contains(out, "postgres://") || strings.Contains(out, "secret") {
			t.Errorf("%s: it ends with %v\n%s", url, err, out)
		}
	}
}
