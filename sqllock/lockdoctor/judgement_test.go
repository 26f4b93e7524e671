package lockdoctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The columns that this package knows of latchkey_responses are those of package
// idempotency, which it may not import.
func TestResponsesAreThoseOfIdempotency(t *testing.T) {
	for _, d := range []sqllock.Dialect{sqllock.PostgreSQL, sqllock.MySQL, sqllock.SQLite} {
		want, ok := parseTable(d, idempotency.Schema(d)[0])
		got, _ := parseTable(d, responses(d)[0])
		if !ok || got.table != want.table || !slices.Equal(got.columns, want.columns) {
			t.Errorf("%s: %+v, want %+v", d, got, want)
		}
	}
}

// An offset counts only beyond what the round trip leaves open.
func TestClockResult(t *testing.T) {
	for _, tt := range []struct {
		offset, bound time.Duration
		want          State
	}{
		{0, time.Millisecond, OK},
		{999 * time.Millisecond, 0, OK},
		{1500 * time.Millisecond, 600 * time.Millisecond, OK},
		{1500 * time.Millisecond, 400 * time.Millisecond, Warning},
		{-1500 * time.Millisecond, 400 * time.Millisecond, Warning},
		{-1500 * time.Millisecond, 600 * time.Millisecond, OK},
	} {
		if got := clockResult(tt.offset, tt.bound, time.Second); got.State != tt.want {
			t.Errorf("%v, known up to %v: %+v", tt.offset, tt.bound, got)
		}
	}
}

// What a failure becomes. No check of a system that lacks a part of PostgreSQL's
// catalog is an error.
func TestFailed(t *testing.T) {
	for _, tt := range []struct {
		err   error
		state State
		fix   string
	}{
		{&dialect.Failure{Kind: dialect.Statement, State: "42883"}, Skipped, ""},
		{&dialect.Failure{Kind: dialect.Statement, State: "42501"}, Error, "right"},
		{&dialect.Failure{Kind: dialect.Full, State: "53200"}, Error, "max_locks_per_transaction"},
		{&dialect.Failure{Kind: dialect.Gone, State: "53300"}, Error, "max_connections"},
		{&dialect.Failure{Kind: dialect.Gone, State: "53100"}, Error, "Free what the server lacks"},
		{&dialect.Failure{Kind: dialect.Full, State: "HY000"}, Error, "Free what the server lacks"},
		{&dialect.Failure{Kind: dialect.Gone, State: "28P01", Permanent: true}, Error, "the password"},
		{dialect.Refuse("this is bad: do that"), Error, "Do that."},
		{dialect.Misconfigured("this is bad: do that"), Error, "Do that."},
		{&dialect.Failure{Kind: dialect.Gone, Reason: "dial: refused"}, Error, "the server runs"},
	} {
		if got := failed(tt.err); got.State != tt.state || !strings.Contains(got.Fix, tt.fix) {
			t.Errorf("%+v: %+v", tt.err, got)
		}
	}
}

// The worst of several findings counts, and all of them are listed.
func TestWorst(t *testing.T) {
	fine, soft, hard := passed("fine"), warning("soft", "a"), wrong("hard", "b")
	for _, tt := range []struct {
		findings []Result
		want     Result
	}{
		{nil, fine},
		{[]Result{soft}, soft},
		{[]Result{soft, hard, soft}, wrong("hard; soft", "b\na")},
	} {
		if got := worst(fine, tt.findings); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.findings, got, tt.want)
		}
	}
}

// The fix of a read-only server is one that the server accepts: innodb_read_only
// cannot be set, and super_read_only goes with read_only.
func TestReadOnlyResult(t *testing.T) {
	for _, tt := range []struct {
		values       map[string]string
		state        State
		reason, fix  string
		contradicted string // what the fix must not say
	}{
		{map[string]string{"read_only": "OFF", "innodb_read_only": "OFF"}, OK, "takes writes", "", "SET"},
		{map[string]string{"read_only": "ON", "innodb_read_only": "OFF"}, Error, "(read_only)", "SET GLOBAL read_only = OFF;", "super"},
		{map[string]string{"read_only": "ON", "super_read_only": "ON"}, Error, "(super_read_only)", "SET GLOBAL read_only = OFF;", "SET GLOBAL super"},
		{map[string]string{"read_only": "1", "super_read_only": "1", "innodb_read_only": "1"}, Error, "(innodb_read_only)", "restart", "SET GLOBAL"},
	} {
		got := readOnlyResult(tt.values)
		if got.State != tt.state || !strings.Contains(got.Reason, tt.reason) || !strings.Contains(got.Fix, tt.fix) || strings.Contains(got.Fix, tt.contradicted) {
			t.Errorf("%v: %+v", tt.values, got)
		}
	}
}
