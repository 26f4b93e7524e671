package dialect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/latchkey-go/latchkey/internal/leaktest"
)

// stateError is a server's error as drivers return it. It has a state, and its
// text names a host, which a Failure must not.
type stateError string

func (e stateError) Error() string    { return "secret-host: " + string(e) }
func (e stateError) SQLState() string { return string(e) }

// A textError is a server's error with a text of its own.
type textError struct {
	stateError
	text string
}

func (e textError) Error() string { return e.text }

func TestFail(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  error
		kind Kind
		text string
	}{
		{"server shut down", stateError("57P01"), Gone, "pg_terminate_backend: SQLSTATE 57P01"},
		{"crash", stateError("57P02"), Gone, "crashed: SQLSTATE 57P02"},
		{"idle session ended", stateError("57P05"), Gone, "(idle_session_timeout): SQLSTATE 57P05"},
		{"idle transaction ended", stateError("25P03"), Gone, "(idle_in_transaction_session_timeout): SQLSTATE 25P03"},
		{"long transaction ended", stateError("25P04"), Gone, "(transaction_timeout): SQLSTATE 25P04"},
		{"protocol", stateError("08P01"), Gone, "08P01"},
		{"password", stateError("28P01"), Gone, "the user or the password: SQLSTATE 28P01"},
		{"no such database", stateError("3D000"), Gone, "3D000"},
		{"no connection left", stateError("53300"), Gone, "53300"},
		{"cancelled", stateError("57014"), Statement, "(statement_timeout): SQLSTATE 57014"},
		{"conflict", stateError("40001"), Statement, "can be tried again: SQLSTATE 40001"},
		{"read-only", stateError("25006"), Statement, "(default_transaction_read_only, or a standby): SQLSTATE 25006"},
		{"without words", stateError("22012"), Statement, "the server answered SQLSTATE 22012"},
		{"temporary files", stateError("53400"), Statement, "temp_file_limit: SQLSTATE 53400"},
		{"disk full", stateError("53100"), Statement, "disk is full: SQLSTATE 53100"},
		{"function denied", textError{"42501", "permission denied for function pg_try_advisory_lock"}, Statement, "pg_try_advisory_lock: grant it EXECUTE: SQLSTATE 42501"},
		{"table denied", stateError("42501"), Statement, "the role lacks a right"},
		{"words of a denial in another error", textError{"22012", "permission denied for function pg_sleep"}, Statement, "the server answered SQLSTATE 22012"},
		{"lock table full", stateError("53200"), Full, "(max_locks_per_transaction): SQLSTATE 53200"},
		{"deadlock", stateError("40P01"), Statement, "40P01"},
		{"wrapped", fmt.Errorf("secret-host: %w", stateError("57P01")), Gone, "57P01"},
		{"connection closed by its owner", sql.ErrConnDone, Closed, "closed by its owner"},
		{"transaction done", sql.ErrTxDone, Closed, "committed or rolled back"},
		{"bad connection", driver.ErrBadConn, Gone, "was closed"},
		{"end of file", io.ErrUnexpectedEOF, Gone, "was closed"},
		{"rows of pgx are open", errors.New("conn busy"), Gone, "close the rows"},
		{"pgx without its cache", errors.New("cannot use QueryExecModeCacheStatement with disabled statement cache"), Gone, "set default_query_exec_mode=exec"},
		{"refused", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, Gone, "refused"},
		{"no such host", &net.DNSError{Name: "secret-host", Err: "no such host"}, Gone, "could not be looked up"},
		{"pgx without TLS", errors.New("server refused TLS connection"), Gone, "sslmode"},
		{"pgx at another server", errors.New("server refused TLS connection (failed to receive message)"), Gone, "the driver could not connect"},
		{"pgx on a standby", errors.New("failed to connect to `user=u database=d`: 127.0.0.1:1 (secret-host): ValidateConnect failed: server is in standby mode"), Gone, "target_session_attrs"},
		{"lib/pq without TLS", errors.New("pq: SSL is not enabled on the server"), Gone, "sslmode"},
		{"anything else", errors.New("secret-host did something"), Gone, "could not connect"},
	}
	for _, tt := range tests {
		var failure *Failure
		if err := Fail(tt.err); !errors.As(err, &failure) {
			t.Errorf("%s: %v is no Failure", tt.name, err)
			continue
		}
		if failure.Kind != tt.kind || !strings.Contains(failure.Error(), tt.text) {
			t.Errorf("%s: kind %d, %q; want %d and %q", tt.name, failure.Kind, failure, tt.kind, tt.text)
		}
		if strings.Contains(failure.Error(), "secret") {
			t.Errorf("%s: %q names the host", tt.name, failure)
		}
	}
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		if got := Fail(fmt.Errorf("secret-host: %w", err)); got != err {
			t.Errorf("Fail of a context's error: %v, want %v", got, err)
		}
	}
	if err := Fail(nil); err != nil {
		t.Errorf("Fail(nil) = %v", err)
	}
}

func TestKeysOfBatch(t *testing.T) {
	t.Parallel()
	keys := make([]Key, 7)
	b := Batch{
		Release: keys[:1],
		Try:     keys[:2],
		Looks:   []Look{{Keys: keys[:3]}, {Keys: keys[:1]}},
		Stacks:  []Stack{{Levels: [][]Key{keys[:2], keys[:5]}}},
	}
	if n := b.Keys(); n != 1+2+3+1+2+5 {
		t.Errorf("a batch with 14 keys has %d", n)
	}
	if b.Reset(); b.Keys() != 0 {
		t.Errorf("an empty batch has %d keys", b.Keys())
	}
}

// The runbook says what to do about each SQLSTATE that has words.
func TestRunbookKnowsEachReason(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range meanings {
		const whole = 5 // characters of a SQLSTATE
		if row := "| " + m.words + " | " + m.codes + " |"; m.system == "" && len(m.codes) == whole && !strings.Contains(string(page), row) {
			t.Errorf("docs/runbook.md has no row that begins with %q", row)
		}
	}
}

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

func TestIsAway(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		ErrNonsense: true, Misconfigured(""): false, errStatement: false, io.EOF: false,
		AsStatement(ErrNonsense): true, AsStatement(io.EOF): true, AsStatement(errStatement): false,
	} {
		if got := IsAway(err); got != want {
			t.Errorf("IsAway(%#v) = %v, want %v", err, got, want)
		}
	}
}

var errStatement = &Failure{Kind: Statement}
