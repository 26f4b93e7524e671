package sqllock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A secretCheck is a namespace and the secret with which this process makes its
// keys. The zero value is that of keys without a secret.
//
// Processes with different secrets make different keys of one name, and both
// would be granted. So a connection checks a secret before it uses it. It becomes
// a user of the check in the database. A database has no two users of one
// namespace with different secrets.
//
// Invariants:
//
//   - A connection requests a key under a secret only while it is a user of the
//     key's check.
//   - A check in connection.secrets is in the database until the connection ends
//     or drops the check. The check leaves secrets before it is dropped.
//   - A connection drops a check only if no key on it needs the check, and only
//     to make room for another one.
type secretCheck struct {
	namespace   Namespace
	fingerprint uint32
}

// secretCheck is the check that a connection must use before it requests k.
func (k Key) secretCheck() secretCheck {
	if k.fingerprint == 0 {
		return secretCheck{}
	}
	return secretCheck{k.namespace, k.fingerprint}
}

func (check secretCheck) dialect() dialect.SecretCheck {
	return dialect.SecretCheckOf(string(check.namespace), check.fingerprint)
}

// A secretConflict is a check that was refused.
type secretConflict struct {
	err     error
	retryAt time.Duration // the check is not made before that
}

const (
	// secretPause is how long after a refusal a check is made again, if it is
	// wanted, less a random part.
	secretPause = 500 * time.Millisecond

	// maxSecrets bounds the checks of a connection: each takes a place in the
	// server's lock table.
	maxSecrets = 100
)

var errMaxSecrets = fmt.Errorf("%w: keys of more than %d namespaces with a secret are in use on one connection", ErrCapacity, maxSecrets)

// A secretDemand is what keys in a connection's queue lack to be requested.
type secretDemand struct {
	keys    int         // how many of them the last batch has left behind
	wanted  secretCheck // the check of one of them
	checked bool        // a check was completed since the last batch
	full    bool        // the connection has as many checks as it may, and needs all
}

// hasSecretLocked reports whether c is a user of the check that k needs.
func (c *connection) hasSecretLocked(k *keyState) bool {
	check := sessionKeyOf(k).check
	return check == secretCheck{} || c.secrets[check]
}

// wantSecretLocked notes that the check of k is needed. It returns nil, or why
// the check cannot be made now. The next statement makes one check. It is one of
// those that are missing at random, so that no key waits for ever.
func (c *connection) wantSecretLocked(k *keyState) error {
	needed := sessionKeyOf(k).check
	if conflict, known := c.slot.s.conflicts[needed]; known && now() < conflict.retryAt {
		return conflict.err
	}
	d := &c.demand
	if d.full {
		return errMaxSecrets
	}
	if d.keys++; rand.IntN(d.keys) == 0 {
		d.wanted = needed
	}
	return nil
}

// missingLocked returns one of states whose check c does not use, and why the
// check cannot be made now, if that is known.
func (c *connection) missingLocked(states []*keyState) (missing *keyState, refused error) {
	for _, k := range states {
		if !c.hasSecretLocked(k) {
			missing = k
			if refused = c.wantSecretLocked(k); refused != nil {
				break
			}
		}
	}
	return missing, refused
}

// prepareSecretLocked takes the check that is wanted and, if there is no room for
// it, one to drop.
func (c *connection) prepareSecretLocked() bool {
	d, r := &c.demand, &c.round
	if d.keys == 0 {
		return false
	}
	r.wanted, r.dropped = d.wanted, secretCheck{}
	*d = secretDemand{}
	if len(c.secrets) < maxSecrets {
		return true
	}
	if r.dropped, d.full = c.spareSecretLocked(); d.full {
		return false
	}
	delete(c.secrets, r.dropped)
	return true
}

// spareSecretLocked returns a check of c that no key needs which is held on c or
// waits in its queue. If there is none, it reports that c is full.
func (c *connection) spareSecretLocked() (spare secretCheck, full bool) {
	needed := make(map[secretCheck]bool)
	for k := range c.slot.s.table.keys.all() {
		if own := sessionKeyOf(k); own.conn == c || k.phase == queued && own.slot == c.slot {
			needed[own.check] = true
		}
	}
	for _, r := range c.slot.groups {
		for _, k := range r.states {
			if k != nil {
				needed[sessionKeyOf(k).check] = true
			}
		}
	}
	for check := range c.secrets {
		if !needed[check] {
			return check, false
		}
	}
	return secretCheck{}, true
}

// sendSecret drops and makes the checks of the round.
func (c *connection) sendSecret() (refused bool, err error) {
	r := &c.round
	if r.dropped != (secretCheck{}) {
		if err := c.session.DropSecret(r.dropped.dialect()); err != nil {
			return false, err
		}
	}
	return c.session.UseSecret(r.wanted.dialect())
}

// completeSecret notes that c uses a check now, or that it conflicts with that of
// another session.
func (c *connection) completeSecret(err error) {
	if err != nil && !c.stillHolds(err) {
		return
	}
	s, check := c.slot.s, c.round.wanted
	s.table.mu.Lock()
	c.renewLocked(now())
	c.demand.checked = true
	was := s.conflicts[check]
	delete(s.conflicts, check)
	switch {
	case err != nil:
		s.noteConflictLocked(check, fromDialect(err))
	case c.round.refused:
		s.noteConflictLocked(check, conflictError(check.namespace))
	default:
		c.secrets[check] = true
	}
	s.table.mu.Unlock()
	if err == nil && c.round.refused && !errors.Is(was.err, ErrNotExclusive) {
		s.options.log.Error("sqllock: this namespace is in use with another key secret: its keys are refused",
			"namespace", string(check.namespace))
	}
}

func (s *Session) noteConflictLocked(check secretCheck, err error) {
	if len(s.conflicts) >= maxSecrets {
		for old, conflict := range s.conflicts {
			if now() >= conflict.retryAt {
				delete(s.conflicts, old)
			}
		}
	}
	s.conflicts[check] = secretConflict{err, now() + jitter(secretPause)}
}

func conflictError(n Namespace) error {
	return fmt.Errorf("%w: the namespace %q is in use with another key secret: give all processes the same, and stop those with the other one",
		ErrNotExclusive, string(n))
}

// conflictLocked is why a key that needs check is denied. It is nil if the key is
// not denied for that, or if no call has wanted the check lately.
func (s *Session) conflictLocked(check secretCheck) error {
	if conflict := s.conflicts[check]; now() < conflict.retryAt+2*pollAway {
		return conflict.err
	}
	return nil
}
