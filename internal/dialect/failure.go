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

// A Kind says what a failure means for the session on which it happened.
type Kind uint8

// The kinds of failure.
const (
	Gone         Kind = iota // the session has ended, or did not respond
	Statement                // the statement failed and the session lives
	Full                     // like Statement, because the server has no room for another lock
	NotExclusive             // it is not proved that locks exclude
	Closed                   // the caller has closed its own connection or transaction
)

// A Failure is an error of a database or a driver, sorted by what it means.
//
// Invariant: its text names no key, host, user or database, so it can be logged
// and shown. It does not keep the driver's error, whose text may name them.
//
//nolint:errname // the engine sorts failures; this is not one kind of error among others
type Failure struct {
	Kind   Kind
	Reason string // for people
	State  string // the SQLSTATE, where the server gave one
	Cause  error  // an error of the standard library with a constant text, or nil

	// Permanent: the failure lasts until a person changes a setting, an account
	// or a right.
	Permanent bool

	// Away: the session lives, but the database or the network did not respond.
	Away bool
}

// Error returns the reason.
func (f *Failure) Error() string { return f.Reason }

// SQLState returns the server's code or "". Drivers' errors have the same
// method.
func (f *Failure) SQLState() string { return f.State }

// Unwrap returns the cause, so that errors.Is finds sql.ErrConnDone and
// sql.ErrTxDone.
func (f *Failure) Unwrap() error { return f.Cause }

// Fail turns a driver's error into a *Failure. It returns context.Canceled and
// context.DeadlineExceeded themselves for errors of a context, and nil for nil.
func Fail(err error) error {
	if err == nil {
		return nil
	}
	var failure *Failure
	if errors.As(err, &failure) {
		return failure
	}
	if function := errcode.Denied(err); function != "" && errcode.SQLState(err) == errcode.Forbidden {
		return &Failure{Kind: Statement, State: errcode.Forbidden, Permanent: true, Reason: "the role may not call the function " + function + ": grant it EXECUTE: SQLSTATE " + errcode.Forbidden}
	}
	if code := errcode.Of(err); code != "" {
		return coded(code, errcode.SQLState(err))
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

// Misconfigured returns the failure of a database or a pool that does not get
// better by waiting.
func Misconfigured(reason string) error { return &Failure{Kind: Gone, Reason: reason, Permanent: true} }

const connectionClosed = "the connection was closed"

// reasonsOfTexts are what parts of the texts of errors mean, where a driver
// exports no value.
var reasonsOfTexts = []struct{ text, reason string }{
	{"invalid connection", connectionClosed}, // go-sql-driver, in a statement
	{"conn busy", "another statement uses the connection: close the rows of the transaction first"},
	{"SSL is not enabled", NoTLS}, // lib/pq
	{"ValidateConnect failed", NoSuchServer},
	{"cannot use QueryExecMode", "pgx sends no statement in this default_query_exec_mode without its cache: set default_query_exec_mode=exec, or leave out the cache's capacity of 0"},
	{"sql: database is closed", "the *sql.DB was closed"},
}

// reason says in general words what is wrong with a connection.
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
		return NoCertificate
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the server did not answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, driver.ErrBadConn), errors.Is(err, net.ErrClosed):
		return connectionClosed
	case errors.Is(err, sql.ErrNoRows):
		return "the database's answer made no sense"
	}
	if strings.HasSuffix(strings.TrimRight(err.Error(), ")"), "server refused TLS connection") { // pgx: no attempt without TLS follows
		return NoTLS
	}
	for _, r := range reasonsOfTexts {
		if strings.Contains(err.Error(), r.text) {
			return r.reason
		}
	}
	return NoDriver + ": are the connection string and its TLS settings right?"
}

// Reasons, or their beginnings, for which the doctor has a fix of its own.
const (
	NoTLS         = "the server does not offer TLS, which the connection string demands (sslmode)"
	NoDriver      = "the driver could not connect"
	NoCertificate = "the server's certificate was not accepted"
	NoSuchServer  = "no server that answers is what target_session_attrs of the connection string demands"
	NoFile        = "the database file could not be opened"
	BadFile       = "the database file is damaged, or is not one of SQLite"
	BusyFile      = "the database file is locked by another connection's transaction"
)

// AsStatement returns err as a failure that the session survives. A full lock
// table stays one.
func AsStatement(err error) error {
	if err == nil {
		return nil
	}
	var failure *Failure
	if !errors.As(err, &failure) {
		return &Failure{Kind: Statement, Reason: "the database did not answer in time", Away: true}
	}
	if failure.Kind == Full {
		return failure
	}
	return &Failure{Kind: Statement, Reason: failure.Reason, State: failure.State, Cause: failure.Cause, Permanent: failure.Permanent, Away: IsAway(failure)}
}

// IsAway reports whether err, a failure, says that the database did not respond.
func IsAway(err error) bool {
	var failure *Failure
	return errors.As(err, &failure) && (failure.Away || failure.Kind == Gone && !failure.Permanent)
}

// Refuse returns the failure of a database whose locks may not exclude.
func Refuse(reason string) error { return &Failure{Kind: NotExclusive, Reason: reason} }

// IsStatement reports whether err, of a driver, is the failure of one
// statement. The database is there then, and has rejected it.
func IsStatement(err error) bool {
	var failure *Failure
	return errors.As(Fail(err), &failure) && failure.Kind == Statement
}

// Survives reports whether a session lives on after err, a *Failure.
func Survives(err error) bool {
	var failure *Failure
	return errors.As(err, &failure) && (failure.Kind == Statement || failure.Kind == Full)
}

var (
	// ErrNonsense is the failure of a response that does not fit the statement.
	ErrNonsense = &Failure{Kind: Gone, Reason: "the server's answer made no sense"}

	// ErrTooLong is the failure of a statement that was too long to be sent.
	ErrTooLong = &Failure{Kind: Full, Reason: "too many keys for one statement: the server's max_allowed_packet is too small for them, or they are more than 25,000"}
)
