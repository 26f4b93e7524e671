package idempotency

import (
	"errors"
	"io"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A stateError is a server's, with a SQLSTATE.
type stateError string

func (e stateError) Error() string    { return "server: " + string(e) }
func (e stateError) SQLState() string { return string(e) }

// SQLite has one code for all mistakes in a statement.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		code, text      string
		table, ofEffect bool
	}{
		{"42P01", "", true, false},
		{"25P01", "", false, true},
		{"40001", "no such table, no such savepoint", false, false},
		{"sqlite 1", "no such table: latchkey_responses", true, false},
		{"sqlite 1", "table latchkey_responses has no column named scope", true, false},
		{"sqlite 1", "ON CONFLICT clause does not match any UNIQUE constraint", true, false},
		{"sqlite 1", "no such savepoint: latchkey", false, true},
		{"sqlite 1", "cannot start a transaction within a transaction", false, false},
		{"sqlite 5", "database is locked, no such table, no such savepoint", false, false},
	} {
		err := errors.New(tt.text)
		if got := isTableMistake(tt.code, err); got != tt.table {
			t.Errorf("%s, %q is of the table: %t", tt.code, tt.text, got)
		}
		if got := isEffectMistake(tt.code, err); got != tt.ofEffect {
			t.Errorf("%s, %q is of the handler: %t", tt.code, tt.text, got)
		}
	}
}

// Only an error without a response says that no transaction was begun.
func TestNoTx(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, stateError("53300"), errDriver} {
		if got := noTx(err); got != err { //nolint:errorlint // noTx returns it as it is
			t.Errorf("%v becomes %v", err, got)
		}
	}
	if got := noTx(io.EOF); !errors.Is(got, sqllock.ErrUnavailable) {
		t.Errorf("no response becomes %v", got)
	}
}

// The errors of statements say whether the table, the handler or nobody is to
// blame.
func TestBlame(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err           error
		store, effect error
	}{
		{io.EOF, sqllock.ErrUnavailable, sqllock.ErrUnavailable},
		{errNoReply, errNoReply, errNoReply},
		{errTable, errTable, errTable},
		{stateError("42P01"), errTable, errTable},
		{stateError("25P01"), nil, ErrTxUnusable},
		{stateError("23503"), nil, ErrTxUnusable},
		{stateError("2350"), nil, nil},
		{stateError("40001"), nil, nil},
	} {
		for _, by := range []struct {
			name      string
			got, want error
		}{{"storeError", storeError(tt.err), tt.store}, {"effectError", effectError(tt.err), tt.effect}} {
			for _, sentinel := range []error{sqllock.ErrUnavailable, errNoReply, errTable, ErrTxUnusable} {
				if is := errors.Is(by.got, sentinel); is != (by.want != nil && errors.Is(by.want, sentinel)) {
					t.Errorf("%s of %v is %v: %t", by.name, tt.err, sentinel, is)
				}
			}
		}
	}
}
