package dialect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A Kind says what a failure means for the session it happened on.
type Kind uint8

// The kinds of failure.
const (
	Gone         Kind = iota // no answer, or one that means the session has ended
	Statement                // the statement failed and the session lives
	Full                     // the same: the server has no room for another lock
	NotExclusive             // the proof that locks exclude was not given
	Closed                   // the caller's own connection or transaction is closed
)

// A Failure is an error whose text names no key, host, user or database: it
// may be shown to anybody. The driver's error is not kept, for its text does.
//
//nolint:errname // the engine sorts failures; this is not one kind of error among others
type Failure struct {
	Kind   Kind
	Reason string // for people
	State  string // the SQLSTATE, where the server gave one
	Cause  error  // an error of the standard library with a constant text, or nil

	// Permanent: only a person can mend it, with another setting, account or right.
	Permanent bool
}

func (f *Failure) Error() string { return f.Reason }

// SQLState is the server's code, or "", by the method that drivers' errors have.
func (f *Failure) SQLState() string { return f.State }

func (f *Failure) Unwrap() error { return f.Cause }

// Fail turns a driver's error into a Failure, and one that comes of a context
// into context.Canceled or context.DeadlineExceeded itself.
func Fail(err error) error {
	if err == nil {
		return nil
	}
	var failure *Failure
	if errors.As(err, &failure) {
		return failure
	}
	if number, state, ok := errcode.MySQL(err); ok {
		return mysqlFailure(number, state)
	}
	if state := errcode.SQLState(err); state != "" {
		return &Failure{Kind: kindOf(state), Reason: inWords(state) + "SQLSTATE " + state, State: state, Permanent: isPermanent(state)}
	}
	if code, ok := errcode.SQLite(err); ok {
		return sqliteFailure(code)
	}
	switch {
	case errors.Is(err, sql.ErrConnDone):
		return &Failure{Kind: Closed, Reason: "the connection was closed by its owner", Cause: sql.ErrConnDone}
	case errors.Is(err, sql.ErrTxDone):
		return &Failure{Kind: Closed, Reason: "the transaction was committed or rolled back already", Cause: sql.ErrTxDone}
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	case errcode.IsTooLarge(err):
		return ErrTooLong
	}
	return &Failure{Kind: Gone, Reason: reason(err)}
}

// inWords is what the commonest refusals of a server mean.
func inWords(state string) string {
	switch {
	case strings.HasPrefix(state, "28"):
		return "the server rejected the user or the password: "
	case strings.HasPrefix(state, "3D"):
		return "the server has no such database: "
	case state == errcode.Forbidden:
		return "the role has no right to this: "
	case state == "53300":
		return "the server has no connection to spare: "
	case state == "53200":
		return "the server's table of locks is full: "
	case state == "57P03":
		return "the server is starting or stopping: "
	}
	return "the server answered "
}

// isPermanent reports whether an SQLSTATE means that the user, the password or the
// database is wrong, or that a right is missing.
func isPermanent(state string) bool {
	return strings.HasPrefix(state, "28") || strings.HasPrefix(state, "3D") || state == errcode.Forbidden
}

// misconfigured rejects a database or a pool for what waiting does not mend.
func Misconfigured(reason string) error { return &Failure{Kind: Gone, Reason: reason, Permanent: true} }

// kindOf tells what an SQLSTATE means for the session. Severity decides that,
// and no portable interface carries it: these are the classes that the server
// raises as FATAL on an established session. Whoever goes on after Statement
// or Full asks Held next, which finds out a session that is gone all the same.
func kindOf(state string) Kind {
	switch {
	case state == "53200":
		return Full
	case strings.HasPrefix(state, "57P"), // shutdown, crash, idle session
		strings.HasPrefix(state, "08"), // connection
		strings.HasPrefix(state, "28"), // authorization
		strings.HasPrefix(state, "3D"), // no such database
		state == "25P03", state == "25P04",
		state == "53300", state == "53400":
		return Gone
	}
	return Statement
}

// reason says in general words what went wrong with a connection.
func reason(err error) string {
	var (
		dns      *net.DNSError
		errno    syscall.Errno
		timeout  interface{ Timeout() bool }
		verify   *tls.CertificateVerificationError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
	)
	switch {
	case errors.As(err, &dns):
		return "the server's name could not be looked up"
	case errors.As(err, &verify), errors.As(err, &unknown), errors.As(err, &hostname):
		return "the server's certificate was not accepted"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the server did not answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, driver.ErrBadConn), errors.Is(err, net.ErrClosed),
		err.Error() == mysqlLost:
		return "the connection was closed"
	}
	if errors.Is(err, sql.ErrNoRows) {
		return "the database's answer made no sense"
	}
	if err.Error() == "sql: database is closed" { // which database/sql does not export
		return "the *sql.DB was closed"
	}
	return "the driver could not connect: are the connection string and its TLS settings right?"
}

// asStatement returns err as a failure that the session survives, with what it
// says of the lock table.
func AsStatement(err error) error {
	if err == nil {
		return nil
	}
	var failure *Failure
	if !errors.As(err, &failure) {
		return &Failure{Kind: Statement, Reason: "the database did not answer in time"}
	}
	if failure.Kind == Full {
		return failure
	}
	return &Failure{Kind: Statement, Reason: failure.Reason, State: failure.State, Cause: failure.Cause}
}

func Refuse(reason string) error { return &Failure{Kind: NotExclusive, Reason: reason} }

// isAnswer reports whether err is one of a statement, of a database that is there.
func IsStatement(err error) bool {
	var failure *Failure
	return errors.As(Fail(err), &failure) && failure.Kind == Statement
}

func Survives(err error) bool {
	var failure *Failure
	return errors.As(err, &failure) && (failure.Kind == Statement || failure.Kind == Full)
}

// Failures that more than one kind of database has.
var (
	ErrNonsense = &Failure{Kind: Gone, Reason: "the server's answer made no sense"}

	ErrTooLong = &Failure{Kind: Full, Reason: "too many keys for one statement: the server's max_allowed_packet is too small for them, or they are more than 25,000"}
)
