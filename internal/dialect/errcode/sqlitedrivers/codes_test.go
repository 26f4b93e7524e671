// Package sqlitedrivers has errors as SQLite's drivers make them. Package errcode
// knows such a driver by the path of its package, so these errors have one of
// their own.
package sqlitedrivers

import (
	"fmt"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A code is an error by itself. ncruces/go-sqlite3 has such errors.
type code uint16

func (c code) Error() string { return "sqlite3: database is locked" }

// Code returns the primary code.
func (c code) Code() uint8 { return uint8(c) } //nolint:gosec // the lower half

// A withMethod is as modernc.org/sqlite has it.
type withMethod struct{ code int }

func (e *withMethod) Error() string { return "database is locked" }
func (e *withMethod) Code() int     { return e.code }

// A withField is as mattn/go-sqlite3 has it.
type withField struct{ Code int }

func (e withField) Error() string { return "database is locked" }

// An uncoded error says nothing.
type uncoded string

func (e uncoded) Error() string { return string(e) }

func TestCode(t *testing.T) {
	const busySnapshot = 5 | 2<<8
	for _, err := range []error{code(busySnapshot), &withMethod{busySnapshot}, withField{busySnapshot}} {
		for _, err := range []error{err, fmt.Errorf("wrapped: %w", err)} {
			if got := errcode.Of(err); got != "sqlite 5" || !errcode.IsBusy(err) {
				t.Errorf("%T: the code is %q, and busy: %v", err, got, errcode.IsBusy(err))
			}
		}
	}
	if got := errcode.Of(uncoded("database is locked")); got != "" {
		t.Errorf("an error without a code has the code %q", got)
	}
}
