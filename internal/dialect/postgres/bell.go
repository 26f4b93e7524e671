package postgres

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Bells: how a release tells the sessions that wait for its key, with NOTIFY.
//
// A session that listens to a bell holds the shared advisory lock (bellClass,
// bell), its mark, and the mark (bellClass, anyBell). A release tries to take
// the marks exclusively until its statement ends. If it does not get one, a
// session listens, and the release sends a notification. Most releases find that
// no session listens to any bell, and look no further.
//
// The server takes a lock of the whole cluster for a commit with NOTIFY, uses up
// a transaction id, and wakes every session that listens in the database. So a
// release without a listener sends none.
//
// Invariants:
//
//   - marks has the marks that the session holds, unless unsure.
//   - A session that holds a mark listens to the channel of its bell.
//
// What can go wrong is a notification too many or too few. A release finds the
// mark in use because another release tries it: that is one too many. A session
// that listens anew finds the mark in use for the same reason: Listen says so,
// and is called again. Two numbers of users' keys could be those of a mark. Then
// those keys are found to be held while a session listens, and nothing worse.
const (
	// bellClass is the first four bytes of SHA-256("latchkey bells").
	bellClass = 374723015

	anyBell = 0 // the mark of a session that listens to any bell

	channel = "latchkey_" // and the number of the bell

	// mostQueued is how full the server's queue of notifications may be. A full
	// queue makes each commit with NOTIFY fail. It fills up when a client
	// listens and never ends its transaction.
	mostQueued = "0.5"
)

// mayRing holds if the role may use what rings a bell. A statement that releases
// would fail otherwise, also while no session listens.
const mayRing = `pg_catalog.has_function_privilege(pg_catalog.to_regprocedure('pg_catalog.pg_notify(text,text)'), 'EXECUTE')
	AND pg_catalog.has_function_privilege(pg_catalog.to_regprocedure('pg_catalog.pg_try_advisory_xact_lock(integer,integer)'), 'EXECUTE')
	AND pg_catalog.has_function_privilege(pg_catalog.to_regprocedure('pg_catalog.pg_notification_queue_usage()'), 'EXECUTE')`

// A listening is what a session does to hear bells.
type listening struct {
	able   bool   // the role may, and the driver keeps no notifications without end
	drop   func() // drops those that the driver keeps; nil: it keeps none
	marks  map[dialect.Bell]bool
	unsure bool // a statement has failed: the marks are not known
}

// CanListen implements dialect.Listener.
func (s *session) CanListen() bool { return s.listening.able }

// forget drops the notifications that the driver has kept.
func (l *listening) forget() {
	if l.drop != nil {
		l.drop()
	}
}

var (
	// takeMarks returns those of the marks $1 that are not free, and drops the
	// marks $2.
	takeMarks = fmt.Sprintf(`SELECT pg_backend_pid(),
		ARRAY(SELECT b FROM (SELECT unnest($1::int[]) AS b) AS u WHERE NOT pg_try_advisory_lock_shared(%d, b))::text,
		(SELECT count(pg_advisory_unlock_shared(%[1]d, b)) FROM (SELECT unnest($2::int[]) AS b) AS u)`, bellClass)

	// dropMarks drops all marks.
	dropMarks = fmt.Sprintf(`SELECT count(pg_advisory_unlock_shared(%d, objid::bigint::int)) FROM pg_locks
		WHERE locktype = 'advisory' AND objsubid = 2 AND classid = '%d'::oid AND mode = 'ShareLock' AND granted AND pid = pg_backend_pid()`,
		bellClass, uint32(bellClass&0xffffffff))
)

// Listen implements dialect.Listener. It listens to a channel before it takes
// the mark, and drops the mark before it stops to listen.
func (s *session) Listen(bells []dialect.Bell) (complete bool, err error) {
	complete, err = s.listen(bells)
	s.listening.forget()
	if err != nil {
		s.listening.marks, s.listening.unsure = nil, true
	}
	return complete, dialect.Fail(err)
}

func (s *session) listen(bells []dialect.Bell) (complete bool, err error) {
	l := &s.listening
	if l.unsure {
		if _, err := s.conn.ExecContext(s.statements.ctx, "UNLISTEN *; "+dropMarks); err != nil {
			return false, err
		}
		l.unsure = false
	}
	if l.marks == nil {
		l.marks = make(map[dialect.Bell]bool)
	}
	add, drop := l.changes(bells)
	if len(add) > 0 {
		if err := s.channels("LISTEN ", add); err != nil {
			return false, err
		}
	}
	if len(add)+len(drop) > 0 {
		if complete, err = s.mark(add, drop); err != nil {
			return false, err
		}
	}
	if len(drop) > 0 {
		err = s.channels("UNLISTEN ", drop)
	}
	return complete || len(add) == 0, err
}

// changes returns the marks to take and those to drop.
func (l *listening) changes(bells []dialect.Bell) (add, drop []dialect.Bell) {
	want := make(map[dialect.Bell]bool, len(bells)+1)
	for _, b := range bells {
		want[b] = true
	}
	if len(bells) > 0 {
		want[anyBell] = true
	}
	for b := range want {
		if !l.marks[b] {
			add = append(add, b)
		}
	}
	for b := range l.marks {
		if !want[b] {
			drop = append(drop, b)
		}
	}
	return add, drop
}

// channels sends LISTEN or UNLISTEN for each of bells, as one statement without
// arguments, which no driver prepares.
func (s *session) channels(command string, bells []dialect.Bell) error {
	var text strings.Builder
	for _, b := range bells {
		if b != anyBell {
			text.WriteString(command + channel + strconv.Itoa(int(b)) + ";")
		}
	}
	if text.Len() == 0 {
		return nil
	}
	_, err := s.conn.ExecContext(s.statements.ctx, text.String())
	return err
}

// mark takes and drops marks. It reports whether it has taken all of add.
func (s *session) mark(add, drop []dialect.Bell) (complete bool, err error) {
	var (
		pid, dropped int64
		text         string
	)
	err = s.conn.QueryRowContext(s.statements.ctx, takeMarks, bellsText(add), bellsText(drop)).Scan(&pid, &text, &dropped)
	if err != nil {
		return false, err
	}
	if pid != s.pid {
		return false, errOtherProcess
	}
	busy, err := parseArray(text)
	if err != nil {
		return false, err
	}
	for _, b := range drop {
		delete(s.listening.marks, b)
	}
	for _, b := range add {
		s.listening.marks[b] = true
	}
	for _, b := range busy {
		delete(s.listening.marks, dialect.Bell(b))
	}
	return len(busy) == 0, nil
}

// bellsText returns the text of an array of bells.
func bellsText(bells []dialect.Bell) string {
	text := []byte{'{'}
	for i, b := range bells {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(b), 10)
	}
	return string(append(text, '}'))
}

// The keys that a statement releases, as ringColumn reads them.
const (
	releasedKeys = "SELECT unnest(%N::bigint[]) AS k"
	releasedKey  = "SELECT %N::bigint AS k"
)

// ringColumn returns the column of a statement that rings the bells of the keys
// it has released. keys are SELECTs of their IDs, each as k.
func ringColumn(keys []string) string {
	return fmt.Sprintf(`CASE WHEN pg_try_advisory_xact_lock(%d, %d) THEN 0 ELSE (
		SELECT count(pg_notify('%s' || b, '')) FROM (SELECT (((k # (k >> 32)) & %d) + 1)::int AS b FROM (%s) AS released) AS bells
		WHERE NOT pg_try_advisory_xact_lock(%[1]d, b) AND pg_notification_queue_usage() < %[6]s) END`,
		bellClass, anyBell, channel, dialect.Bells-1, strings.Join(keys, " UNION ALL "), mostQueued)
}
