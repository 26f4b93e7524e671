package lockdoctor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// How often auditSession looks before it believes in a discrepancy, and the
// longest pause before another look. The pauses are random, so that they are not
// in step with callers who take and release a key regularly.
const (
	auditLooks = 12
	auditPause = 40 * time.Millisecond
)

// postgresAudit compares the advisory locks that the server has for each
// connection of the Sessions with the locks that the Sessions believe to hold.
func postgresAudit(ctx context.Context, s *subject) Result {
	switch {
	case len(s.sessions) == 0:
		return skipped(noSession)
	case s.leaseTable:
		return skipped("the locks of a lease table are not in pg_locks")
	}
	var findings []Result
	locks, connections := 0, 0
	for _, session := range s.sessions {
		if session.Dialect() != s.dialect {
			continue // the check "session" says so
		}
		found, n, err := s.auditSession(ctx, session)
		if err != nil {
			return failed(err)
		}
		findings = append(findings, auditFindings(found)...)
		locks += n
		for _, c := range session.Connections() {
			if c.PID != 0 {
				connections++
			}
		}
	}
	if connections == 0 {
		return worst(skipped("no Session is connected, or their server processes are not known because of a pooler or a lease table"), findings)
	}
	return worst(passed("the server has exactly the locks that the Sessions hold: %s on %s", counted(locks, "lock"), counted(connections, "connection")), findings)
}

// auditSession returns in what the Session and the server differ. A discrepancy
// counts if it shows in every look. The number is that of locks that were held
// at the first look.
func (s *subject) auditSession(ctx context.Context, session *sqllock.Session) (found map[discrepancy]bool, held int, err error) {
	var last []sqllock.Connection
	for look := range auditLooks {
		before := session.Connections()
		seen, err := s.look(ctx, before)
		if err != nil {
			return nil, 0, err
		}
		after := session.Connections()
		now := compare(before, seen, after)
		if look == 0 {
			found = now
			for _, c := range before {
				held += len(c.Held) + len(c.Shared)
			}
		}
		for d := range found {
			if !now[d] {
				delete(found, d)
			}
		}
		if len(suspects(found, after)) == 0 {
			return nil, held, nil
		}
		last = after
		if err := sleep(ctx, rand.N(auditPause)); err != nil { //nolint:gosec // to be out of step with callers
			return nil, 0, err
		}
	}
	return suspects(found, last), held, nil
}

// auditFindings returns a finding for each kind of discrepancy, without keys.
func auditFindings(found map[discrepancy]bool) (findings []Result) {
	count := map[kind]int{}
	pids := map[kind][]int64{}
	for d := range found {
		count[d.kind]++
		if !slices.Contains(pids[d.kind], d.pid) {
			pids[d.kind] = append(pids[d.kind], d.pid)
		}
	}
	end := func(k kind) string {
		slices.Sort(pids[k])
		var calls []string
		for _, pid := range pids[k] {
			calls = append(calls, fmt.Sprintf("SELECT pg_terminate_backend(%d);", pid))
		}
		return strings.Join(calls, "\n")
	}
	for _, f := range []struct {
		kind        kind
		reason, fix string
	}{
		{missing, counted(count[missing], "lock") + " that a Session believes to hold are not in pg_locks, so others may hold them too",
			"End the connection, so that its holders are told, and find the program that releases locks on it:\n" + end(missing)},
		{orphan, counted(count[orphan], "lock") + " on a Session's connection belong to no caller, and keep others out until the connection ends",
			"End the connection; its holders are told, and the Session connects again:\n" + end(orphan)},
		{secret, "a Session's connection has more shared locks than its readers and key secrets account for",
			"End the connection; its holders are told, and the Session connects again:\n" + end(secret)},
		{gone, "the server has no process for " + counted(count[gone], "connection") + " that a Session believes to have",
			"Let the pool that is examined and the Session lead to the same server: this one may be another node."},
		{away, counted(count[away], "connection") + " of a Session are in another database, whose locks do not exclude those here",
			"Let all connection strings name the same database."},
	} {
		if count[f.kind] > 0 {
			findings = append(findings, wrong(f.reason, f.fix))
		}
	}
	return findings
}
