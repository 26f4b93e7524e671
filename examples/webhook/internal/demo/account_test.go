package demo

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// The accounts notice what is lost and what is done twice.
func TestAccountsCanFail(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, meddle, complaint string
	}{
		{"all is well", "SELECT 1", "no receiver was killed"}, // and only that is missing
		{"repeated", "INSERT INTO ledger (event_id, account, amount) SELECT event_id, account, amount FROM ledger LIMIT 1", "do not add up"},
		{"lost", "DELETE FROM ledger WHERE id = 1", "do not add up"},
		{"another amount", "UPDATE ledger SET amount = 5 WHERE id = 1", "do not add up"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t)
			db := dbtest.Open(t, "pgx", url)
			do := func(statement string, args ...any) {
				t.Helper()
				dbtest.Execute(t, db, statement, args...)
			}
			do("CREATE TABLE processed_events (event_id text)")
			do("CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY, event_id text, account text, amount bigint)")
			var sent []event
			for i := range 3 {
				e := event{ID: fmt.Sprint("run-", i), Account: "a", Amount: 1}
				do("INSERT INTO processed_events VALUES ($1)", e.ID)
				do("INSERT INTO ledger (event_id, account, amount) VALUES ($1, $2, $3)", e.ID, e.Account, e.Amount)
				sent = append(sent, e)
			}
			do(tt.meddle)
			s := &sender{fleet: &fleet{}}
			if err := s.account(t.Context(), url, "run-", sent, io.Discard); err == nil || !strings.Contains(err.Error(), tt.complaint) {
				t.Errorf("the accounts say %v, want %q", err, tt.complaint)
			}
		})
	}
}

// A receiver kills itself at its point, the N-th time, and never without a Crash.
func TestAt(t *testing.T) {
	t.Parallel()
	r := &Receiver{Crash: crash{Point: AfterCommit, N: 2}}
	r.At(BeforeCommit)
	r.At(BeforeCommit)
	r.At(AfterCommit)
	if r.Crash.N != 1 {
		t.Errorf("%d more times, want 1", r.Crash.N)
	}
	for range 3 {
		(&Receiver{}).At(AfterCommit)
		(*Receiver)(nil).At(AfterCommit)
	}
}
