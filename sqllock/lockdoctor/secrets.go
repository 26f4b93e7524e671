package lockdoctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// noteTable is the table of notes. A note says which secret a Session uses for a
// namespace. It has the class of the namespace, a fingerprint of the secret, and
// the number of a lock of the Session.
//
// Invariant: a note counts while its lock is held, which is acquired before the
// note is written. The number is random, so a lock that is free stays free, and
// any Check may remove the note.
const noteTable = "latchkey_secret_checks"

// secrets finds out whether another Session uses a namespace with another secret.
func secrets(ctx context.Context, s *subject) (fine string, err error) {
	found := slices.ContainsFunc(s.tables, func(t table) bool { return t.table == noteTable && t.found })
	switch {
	case len(s.namespaces) == 0:
		return "", skip("no namespace was given (WithKeyedNamespace)")
	case len(s.sessions) == 0:
		return "", noSession
	case s.dialect == sqllock.MySQL && !found: // elsewhere the Session has made it
		_, err = s.db.ExecContext(ctx, sqllock.Schema(sqllock.MySQL)[0])
	}
	advisory := s.dialect == sqllock.PostgreSQL && !s.leaseTable && !(found && s.mayKeepRows())
	for _, n := range s.namespaces {
		var differs bool
		if err == nil {
			differs, err = s.differs(ctx, n, advisory)
		}
		if differs && err == nil {
			s.wrong("another Session uses the namespace "+string(n.Key("").Namespace())+" with another secret, which makes other keys of the same names",
				"Give all processes the same secret: stop those with the wrong one. An idle process counts until it has ended.")
		}
	}
	return "no other Session is known to use these namespaces with another secret", err
}

// differs requests a random key of n. With advisory locks the Session compares
// its secret itself then. Elsewhere the lock is that of a note.
//
// Of two Checks at once at least one sees the other's note. A Check that removes
// a note holds its lock for a moment, so a difference must last for several looks.
func (s *subject) differs(ctx context.Context, n sqllock.KeyedNamespace, advisory bool) (differs bool, err error) {
	key := n.Key(rand.Text())
	lock, err := s.sessions[0].TryLock(ctx, key)
	switch {
	case errors.Is(err, sqllock.ErrNotExclusive):
		return true, nil
	case err != nil:
		return false, err
	case advisory:
		return false, lock.Unlock()
	}
	const text = "latchkey doctor"
	class := int32(sqllock.Namespace(text).Key(string(key.Namespace())).Int64()) //nolint:gosec // a part of a hash
	ours := int32(n.Key(text).Int64())                                           //nolint:gosec // a part of a hash
	noted, _, err := s.look(ctx, class, ours)
	if err == nil && !noted {
		_, err = s.db.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (class, fingerprint, session) VALUES (%d, %d, '%d')", noteTable, class, ours, key.Int64()))
	}
	differs = true
	for n := 0; err == nil && differs && n < looks; n++ {
		if err = sleep(ctx, time.Duration(n)*pause); err == nil {
			_, differs, err = s.look(ctx, class, ours)
		}
	}
	if noted || err != nil {
		_ = s.forget(ctx, class, lock)
	}
	return differs, err
}

// look removes the notes of a class that do not count. Of the others it reports
// whether one is the Session's own, and whether one has another secret than ours.
func (s *subject) look(ctx context.Context, class, ours int32) (noted, differs bool, err error) {
	session, notes := s.sessions[0], map[sqllock.Key]int32{}
	err = s.each(ctx, fmt.Sprintf("SELECT fingerprint, session FROM %s WHERE class = %d", noteTable, class), func(scan func(...any) error) error {
		var fingerprint int32
		var number int64
		err := scan(&fingerprint, &number)
		notes[sqllock.ID(number)] = fingerprint
		return err
	})
	for err == nil && len(notes) > 0 {
		var free *sqllock.Lock
		if free, err = session.TryAny(ctx, slices.Collect(maps.Keys(notes))...); err == nil {
			delete(notes, free.Key())
			err = s.forget(ctx, class, free)
		}
	}
	if err != nil && !errors.Is(err, sqllock.ErrHeld) {
		return false, false, err
	}
	var held []sqllock.Key
	for _, c := range session.Connections() {
		held = append(held, c.Held...)
	}
	for k, fingerprint := range notes {
		noted = noted || fingerprint == ours && slices.Contains(held, k)
		differs = differs || fingerprint != ours
	}
	return noted, differs, nil
}

// forget removes the note of a lock, and releases the lock.
func (s *subject) forget(ctx context.Context, class int32, lock *sqllock.Lock) error {
	_, err := s.db.ExecContext(ctx, fmt.Sprintf("DELETE FROM %s WHERE class = %d AND session = '%d'", noteTable, class, lock.Key().Int64()))
	return errors.Join(err, lock.Unlock())
}
