package idempotency_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/subprocess"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// crashRole is the role of an instance that is killed: the test binary, started
// again.
const crashRole = "crashing instance"

// A crash is where an instance is killed with SIGKILL.
type crash struct {
	Driver, DSN string
	InEffect    bool // when the effect is done and not committed; otherwise after the commit, at the first byte of the response
}

// crashingInstance serves until it is killed, in a process of that role. In any
// other process it does nothing.
func crashingInstance() {
	subprocess.MainReader(crashRole, func(parent io.Reader, c crash) error { return c.serve(parent) })
}

func (c crash) serve(parent io.Reader) error {
	db, err := sql.Open(c.Driver, c.DSN)
	if err != nil {
		return err
	}
	locks, err := sqllock.Open(context.Background(), db)
	if err != nil {
		return err
	}
	once := idempotency.New(db, ratelimit.OneAtATime(locks, "pay"), httpmw.Header(user))
	mux := http.NewServeMux()
	mux.Handle("/", once.Handler(http.HandlerFunc(c.pay)))
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	if err != nil {
		return err
	}
	go func() { // end with the parent
		_, _ = io.Copy(io.Discard, parent)
		os.Exit(0)
	}()
	fmt.Println(listener.Addr())
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // a test's
		mux.ServeHTTP(deadlyWriter{w}, r)
	}))
}

func (c crash) pay(w http.ResponseWriter, r *http.Request) {
	tx, _ := idempotency.Tx(r.Context())
	if _, err := tx.ExecContext(r.Context(), "INSERT INTO ledger VALUES ('x')"); err != nil {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	if c.InEffect {
		subprocess.Crash()
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, "paid")
}

// A deadlyWriter kills its process when the response begins.
type deadlyWriter struct{ http.ResponseWriter }

func (deadlyWriter) WriteHeader(int) { subprocess.Crash() }

// start starts an instance that will crash, and returns where it serves.
func (c crash) start(t *testing.T) (*httptest.Server, *subprocess.Process) {
	t.Helper()
	p, err := subprocess.Start(crashRole, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	address, err := p.ReadLine()
	if err != nil {
		t.Fatal(err)
	}
	s := httptesting.Serve(t, http.NotFoundHandler()) // for its client
	s.URL = "http://" + address
	return s, p
}

// If an instance is killed between commit and response, the effect is done: a
// retry at another instance gets the response, and has no effect. If it is
// killed before the commit, the retry does the effect.
func TestLongCrash(t *testing.T) {
	for _, tt := range []struct {
		name     string
		inEffect bool
		effects  int // left by the crash
		replayed bool
	}{
		{"between effect and response", false, 1, true},
		{"in the effect", true, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachBank(t, func(t *testing.T, b *bank) {
				doomed, process := crash{b.driver, b.dsn, tt.inEffect}.start(t)
				if r, err := ask(t.Context(), doomed, demand{key: "k-1"}); err == nil {
					t.Fatalf("status %d, want a crash", r.StatusCode)
				}
				httptesting.Receive(t, process.Ended(), "end of the instance")
				if err := process.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
					t.Fatalf("the instance ended with %v, want a kill", err)
				}
				b.wantEffects(tt.effects)

				r := b.retry(b.serve(b.once(b.locks()), b.pay(http.StatusCreated)), demand{key: "k-1"})
				if r.Want(t, http.StatusCreated); isReplay(r) != tt.replayed || r.Text != "paid" {
					t.Errorf("replayed %v, %q; want %v, paid", isReplay(r), r.Text, tt.replayed)
				}
				b.wantEffects(1)
			})
		})
	}
}
