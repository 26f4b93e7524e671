package idempotency_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// crashEnv holds the orders of an instance that is to be killed: the test binary,
// started again.
const crashEnv = "LATCHKEY_TEST_CRASH"

// A crash is where an instance is killed with SIGKILL.
type crash struct {
	Driver, DSN string
	InEffect    bool // when the effect is done and not committed; else after the commit, at the answer's first byte
}

// crashingInstance serves until it is killed, in a process that has orders to, and
// does not return there.
func crashingInstance() {
	text := os.Getenv(crashEnv)
	if text == "" {
		return
	}
	var c crash
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.serve()
	}
	fmt.Fprintln(os.Stderr, "crashing instance:", err)
	os.Exit(1)
}

func (c crash) serve() error {
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
	go func() { // die with the parent
		_, _ = io.Copy(io.Discard, os.Stdin)
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
		die()
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, "paid")
}

func die() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

// A deadlyWriter kills its process when the answer begins.
type deadlyWriter struct{ http.ResponseWriter }

func (deadlyWriter) WriteHeader(int) { die() }

// start starts an instance that will crash, and returns where it serves.
func (c crash) start(t *testing.T) (*httptest.Server, *exec.Cmd) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0]) //nolint:gosec,noctx // this test binary
	cmd.Env = append(os.Environ(), crashEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	if _, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, http.NotFoundHandler()) // for its client
	s.URL = "http://" + strings.TrimSpace(address)
	return s, cmd
}

// An instance that is killed between commit and answer has done the effect: the
// retry, at another one, gets the answer and does not repeat it. One that is killed
// before has not, and the retry does it.
func TestCrash(t *testing.T) {
	for _, tt := range []struct {
		name     string
		inEffect bool
		effects  int // left by the crash
		replayed string
	}{
		{"between effect and answer", false, 1, "true"},
		{"in the effect", true, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachBank(t, func(t *testing.T, b *bank) {
				doomed, process := crash{b.driver, b.dsn, tt.inEffect}.start(t)
				if r, err := ask(t.Context(), doomed, demand{key: "k-1"}); err == nil {
					t.Fatalf("answered %d, want a crash", r.StatusCode)
				}
				if err := process.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
					t.Fatalf("the instance ended with %v, want a kill", err)
				}
				b.wantEffects(tt.effects)

				s := b.serve(b.once(b.locks()), b.pay(http.StatusCreated))
				var r reply
				lockertest.Eventually(t, "the dead one's lock is free", func() bool {
					r = mustAsk(t, s, demand{key: "k-1"})
					return r.StatusCode != http.StatusConflict
				})
				r.want(t, http.StatusCreated)
				if got := r.Header.Get("Idempotency-Replayed"); got != tt.replayed || r.text != "paid" {
					t.Errorf("replayed %q, %q; want %q, paid", got, r.text, tt.replayed)
				}
				b.wantEffects(1)
			})
		})
	}
}
