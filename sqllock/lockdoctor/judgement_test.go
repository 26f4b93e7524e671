package lockdoctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The columns that this package knows of latchkey_responses are those of package
// idempotency, which it may not import.
func TestResponsesAreThoseOfIdempotency(t *testing.T) {
	got := tablesOf("", feature{schema: responses})[0]
	for _, d := range []sqllock.Dialect{sqllock.PostgreSQL, sqllock.MySQL, sqllock.SQLite} {
		want := tablesOf(d, feature{schema: idempotency.Schema})[0]
		if got.table != want.table || len(want.columns) == 0 || !slices.Equal(got.columns, want.columns) {
			t.Errorf("%s: %+v, want %+v", d, got, want)
		}
	}
}

// What a failure becomes. No check of a system that lacks a part of PostgreSQL's
// catalog is an error, but a login that fails is one in any case.
func TestFailed(t *testing.T) {
	lacks := &dialect.Failure{Kind: dialect.Statement, State: "42704"}
	for _, tt := range []struct {
		err   error
		state State
		fix   string
	}{
		{lacks, Skipped, ""},
		{unconnected{lacks}, Error, "the server runs"},
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

// The worst of several findings counts, and all of them are listed once.
func TestWorst(t *testing.T) {
	fine, soft, hard := Result{State: OK, Reason: "fine"}, Result{State: Warning, Reason: "soft", Fix: "a"}, Result{State: Error, Reason: "hard", Fix: "b"}
	for _, tt := range []struct {
		findings []Result
		want     Result
	}{
		{[]Result{fine}, fine},
		{[]Result{soft, fine}, soft},
		{[]Result{soft, hard, soft, fine}, Result{State: Error, Reason: "hard; soft", Fix: "b\na"}},
	} {
		if got := worst(tt.findings); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.findings, got, tt.want)
		}
	}
}
