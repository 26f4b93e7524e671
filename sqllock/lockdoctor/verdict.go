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

// The results of checks, before they have a name. A reason is a sentence without
// a full stop. A fix is one or more sentences or SQL statements, one to a line.

func passed(reason string, args ...any) Result {
	return Result{State: OK, Reason: fmt.Sprintf(reason, args...)}
}

func skipped(reason string) Result { return Result{State: Skipped, Reason: reason} }

func warning(reason, fix string) Result {
	return Result{State: Warning, Reason: reason, Fix: fix}
}

func wrong(reason, fix string) Result { return Result{State: Error, Reason: reason, Fix: fix} }

// failed returns the result of a check whose question was not answered. The
// texts of failures name no host, user or key.
func failed(err error) Result {
	err = dialect.Fail(err)
	var failure *dialect.Failure
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return wrong("the server did not answer a question in time", whereToLook)
	case !errors.As(err, &failure):
		return wrong("the question was interrupted", whereToLook)
	}
	if slices.Contains(unknownHere, failure.State) {
		return skipped("this system does not have what the check asks for (SQLSTATE " + failure.State + ")")
	}
	if reason, fix, ok := splitReason(failure); ok {
		return wrong(reason, fix)
	}
	fix := whereToLook
	switch {
	case errors.Is(err, dbconn.ErrNoConnection):
		fix = "Check that the server responds. If it does, give the locks a pool of their own, which no request uses."
	case errors.Is(err, dbconn.ErrNoServer):
		fix = "Check that the server responds, and that the connection string and the network lead to it."
	case failure.State == errcode.Forbidden:
		fix = "Grant the role the right that is missing: see the check \"rights\"."
	case failure.State == lockTableFull:
		fix = "End the session that holds the most locks, then raise max_locks_per_transaction and restart the server."
	case failure.State == tooManyConnections:
		fix = "Close connections of other clients, or raise the limit: max_connections of the server, or the CONNECTION LIMIT of the role or the database."
	case strings.HasPrefix(failure.Reason, dialect.Crowded):
		fix = "Close connections of other clients, or raise the limit: max_connections or max_user_connections of the server, " +
			"or that of the account (MAX_USER_CONNECTIONS, or one for each hour)."
	case failure.Kind == dialect.Full, strings.HasPrefix(failure.State, "53"):
		fix = "Free what the server lacks, or raise the limit that it has reached."
	case failure.Permanent:
		fix = "Correct the user, the password or the database in the connection string."
	}
	return wrong(failure.Reason, fix)
}

// unknownHere are the errors of a system that only resembles PostgreSQL: it has
// not all of PostgreSQL's catalog.
var unknownHere = []string{errcode.UndefinedFunction, errcode.UndefinedTable, errcode.UndefinedColumn, errcode.FeatureNotSupported, "42704", "42601"}

const whereToLook = "Check that the server runs, and that the connection string and the network lead to it."

// splitReason returns the two halves of a reason that says after a colon what to
// change. The reason of an error that the server gave has none.
func splitReason(f *dialect.Failure) (reason, fix string, ok bool) {
	if f.State != "" || !(f.Kind == dialect.NotExclusive || f.Permanent) {
		return "", "", false
	}
	reason, fix, ok = strings.Cut(f.Reason, ": ")
	return reason, sentence(fix), ok
}

// sentence returns text as a sentence.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
}

// worst returns the result of several findings of one check. Its state is that
// of the worst of them, which are listed first. Without a finding it returns
// fine.
func worst(fine Result, findings []Result) Result {
	if len(findings) == 0 {
		return fine
	}
	all := Result{State: Warning}
	var reasons, fixes []string
	for _, state := range []State{Error, Warning} {
		for _, f := range findings {
			if f.State != state {
				continue
			}
			if state == Error {
				all.State = Error
			}
			reasons, fixes = appendNew(reasons, f.Reason), appendNew(fixes, f.Fix)
		}
	}
	all.Reason, all.Fix = strings.Join(reasons, "; "), strings.Join(fixes, "\n")
	return all
}

// appendNew appends text unless it is there.
func appendNew(texts []string, text string) []string {
	for _, t := range texts {
		if t == text {
			return texts
		}
	}
	return append(texts, text)
}

// counted returns "1 thing" or "n things".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if strings.HasSuffix(thing, "s") {
		return fmt.Sprintf("%d %ses", n, thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
