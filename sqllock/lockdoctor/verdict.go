package lockdoctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A reason is a sentence without a full stop. A fix is one or more sentences or
// SQL statements, one to a line.

// warn notes a finding that may do harm later.
func (s *subject) warn(reason, fix string) {
	s.findings = append(s.findings, Result{State: Warning, Reason: reason, Fix: fix})
}

// wrong notes a finding that does harm.
func (s *subject) wrong(reason, fix string) {
	s.findings = append(s.findings, Result{State: Error, Reason: reason, Fix: fix})
}

// A skip is the error of a check that does not apply. Its text is the reason.
type skip string

func (why skip) Error() string { return string(why) }

// conclude notes how a check has ended, unless it has found something.
func (s *subject) conclude(fine string, err error) {
	var why skip
	switch {
	case errors.As(err, &why):
		s.findings = append(s.findings, Result{State: Skipped, Reason: string(why)})
	case err != nil:
		s.findings = append(s.findings, failed(err))
	default:
		s.findings = append(s.findings, Result{State: OK, Reason: fine})
	}
}

// worst returns the result of a check from its findings, the last of which is how
// it has ended. The state is that of the worst of them, which are listed first.
func worst(findings []Result) Result {
	slices.SortStableFunc(findings, func(a, b Result) int { return b.State.severity() - a.State.severity() })
	worst := findings[0]
	for _, f := range findings[1:] {
		if f.State.severity() > 0 {
			worst.Reason = appendNew(worst.Reason, "; ", f.Reason)
			worst.Fix = appendNew(worst.Fix, "\n", f.Fix)
		}
	}
	return worst
}

// appendNew appends text unless it is there.
func appendNew(texts, separator, text string) string {
	if strings.Contains(texts, text) {
		return texts
	}
	return texts + separator + text
}

// An unconnected error is one of a pool that has given no connection. So it says
// nothing about a question.
type unconnected struct{ error }

func (u unconnected) Unwrap() error { return u.error }

// failed returns the result of a check whose question was not answered. It is
// skipped only if the system has answered, and lacks what the question needs.
// The texts of failures name no host, user or key.
func failed(err error) Result {
	atLogin := errors.As(err, new(unconnected))
	err = dialect.Fail(err)
	var failure *dialect.Failure
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		failure = &dialect.Failure{Reason: "the server did not answer a question in time"}
	case !errors.As(err, &failure):
		failure = &dialect.Failure{Reason: "the question was interrupted"}
	case slices.Contains(unknownHere, failure.State) && !atLogin:
		return Result{State: Skipped, Reason: "this system does not have what the check asks for (SQLSTATE " + failure.State + ")"}
	}
	reason, advice, _ := strings.Cut(failure.Reason, ": ")
	if advice != "" && failure.State == "" && (failure.Kind == dialect.NotExclusive || failure.Permanent) { // it says itself what to change
		return Result{State: Error, Reason: reason, Fix: strings.ToUpper(advice[:1]) + strings.TrimSuffix(advice[1:], ".") + "."}
	}
	result := Result{State: Error, Reason: failure.Reason, Fix: whereToLook}
	switch {
	case failure.Kind == dialect.Full, strings.HasPrefix(failure.State, "53"):
		result.Fix = "Free what the server lacks, or raise the limit that it has reached."
	case failure.Permanent:
		result.Fix = "Correct the user, the password or the database in the connection string."
	}
	for _, f := range fixes {
		if f.state != "" && f.state == failure.State || f.reason != "" && strings.HasPrefix(failure.Reason, f.reason) {
			result.Fix = f.fix
		}
	}
	return result
}

// unknownHere are the errors of a system that only resembles PostgreSQL: it has
// not all of PostgreSQL's catalog.
var unknownHere = []string{errcode.UndefinedFunction, errcode.UndefinedTable, errcode.UndefinedColumn, errcode.FeatureNotSupported, "42704", "42601"}

const (
	whereToLook        = "Check that the server runs, and that the scheme, the host and the port of the connection string lead to it."
	tooManyConnections = "53300" // of the server, the role or the database
)

// fixes are what to do about failures with an SQLSTATE, or with a reason that
// begins so. The last one that fits counts.
var fixes = []struct{ state, reason, fix string }{
	{state: errcode.Forbidden, fix: "Grant the role the right to the functions and views of pg_catalog, and to the tables of latchkey, that the check uses."},
	{reason: "the server rejected the user, by pg_hba.conf", fix: "Let the role log in (ALTER ROLE … LOGIN; with its name), admit it in pg_hba.conf, or set sslmode=require if the server demands TLS."},
	{state: "28P01", fix: "Correct the user or the password in the connection string, or renew the password (VALID UNTIL)."},
	{state: "08P01", fix: "Correct the user, the password or the database in the connection string, and take out parameters that a pooler such as PgBouncer does not know. Its log names the cause."},
	{state: "53200", fix: "End the session that holds the most locks, then raise max_locks_per_transaction and restart the server."},
	{reason: dialect.Crowded, fix: "Close connections of other clients, or raise the limit: max_connections or max_user_connections of the server, " +
		"or that of the account (MAX_USER_CONNECTIONS, or one for each hour)."},
	{state: tooManyConnections, fix: "Close connections of other clients, or raise the limit: max_connections of the server, or the CONNECTION LIMIT of the role or the database."},
	{reason: "the user may not do this with latchkey's tables", fix: "Grant the user SELECT, INSERT, UPDATE and DELETE on the tables of latchkey, which sqllock.Schema(sqllock.MySQL) makes."},
	{reason: dbconn.ErrNoConnection.Error(), fix: "Check that the server responds. If it does, give the locks a pool of their own, which no request uses."},
	{reason: dbconn.ErrNoServer.Error(), fix: "Check that the server responds, and that the scheme, the host and the port of the connection string lead to it."},
	{reason: dialect.NoCertificate, fix: "Name the authority that has signed it with sslrootcert, and the host that it was issued for."},
	{reason: dialect.NoTLS, fix: "Let the server offer TLS (ssl = on), or set sslmode=disable if the network between is to be trusted."},
	{reason: dialect.NoSuchServer, fix: "Check which servers are up and which of them is the primary, or correct target_session_attrs."},
	{reason: dialect.NoFile, fix: "Correct the path, or the rights of the file and its directory."},
	{reason: dialect.BadFile, fix: "Correct the path, or restore the file from a backup."},
	{reason: dialect.BusyFile, fix: "Wait until that transaction has ended, or end its process."},
	{state: "57014", fix: "Raise statement_timeout of the role, the database or the server, if it is short."},
	{reason: dialect.NoDriver, fix: "Check that the scheme of the connection string is that of the server at this port, and its parameters for TLS."},
}

// counted returns "1 thing" or "n things".
func counted(n int, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "s"):
		return fmt.Sprintf("%d %ses", n, thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// processes names server processes in a reason.
func processes(pids []int64) string {
	slices.Sort(pids)
	return "server process " + strings.Trim(strings.ReplaceAll(fmt.Sprint(pids), " ", ", "), "[]")
}
