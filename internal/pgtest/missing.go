package pgtest

import (
	"errors"
	"flag"
	"os"
	"testing"
)

// EnvMissing is the environment variable that says what happens to a test whose
// server is not installed. If it is "skip", the test is skipped. Otherwise the
// test fails. `make test` sets it where it cannot install a server.
const EnvMissing = "LATCHKEY_TEST_MISSING"

// A MissingError reports that a program that the tests need was not found.
type MissingError struct {
	Program string
	Advice  string // what to do
}

func (e *MissingError) Error() string { return e.Program + " was not found: " + e.Advice }

// ErrNoPostgres reports that PostgreSQL 14 or newer was not found.
var ErrNoPostgres error = &MissingError{"PostgreSQL 14 or newer", "run `make deps`, or set " +
	EnvServer + " to the DSN of a server in which databases may be created"}

// errNoPrograms is ErrNoPostgres where EnvServer is set already, so that the
// advice to set it would not help.
var errNoPrograms error = &MissingError{"PostgreSQL 14 or newer", "this test needs a server of its own, which " + EnvServer +
	" cannot give (it is stopped or killed); run `make deps`"}

// errNoPgBouncer reports that PgBouncer was not found.
var errNoPgBouncer error = &MissingError{"PgBouncer", "run `make deps`"}

// Fatal ends a test whose server did not start. If err is a MissingError and
// EnvMissing says so, the test is skipped.
func Fatal(tb testing.TB, err error) {
	tb.Helper()
	if missing := (*MissingError)(nil); errors.As(err, &missing) && os.Getenv(EnvMissing) == "skip" {
		tb.Skip("missing: " + missing.Program)
	}
	tb.Fatal(err)
}

// skipExamples skips the Examples of the binary where EnvMissing says so and
// there is no PostgreSQL: an Example cannot skip itself.
func skipExamples() error {
	if os.Getenv(EnvMissing) != "skip" || os.Getenv(EnvServer) != "" {
		return nil
	}
	if _, err := findPrograms(); err == nil {
		return nil
	}
	flag.Parse()
	skip := flag.Lookup("test.skip")
	if skip.Value.String() != "" {
		return skip.Value.Set(skip.Value.String() + "|^Example")
	}
	return skip.Value.Set("^Example")
}
