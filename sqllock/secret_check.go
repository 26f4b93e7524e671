package sqllock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A secretCheck says that this process makes the keys of a namespace with a
// certain secret. The zero value is that of keys without a secret.
//
// Processes with different secrets would make different keys of one name, and so
// let two requests in. So a connection requests such a key only once it has made
// the check, and no two connections have made checks of one namespace with
// different secrets.
//
// A connection makes a check when a key needs it. It gives the check back when no
// key has needed it for a while. So a process that does not use a secret does not
// keep others from using another one.
type secretCheck struct {
	namespace Namespace
	print     uint32
}

// secretCheck is what a connection must have made before it requests k.
func (k Key) secretCheck() secretCheck {
	if k.print == 0 {
		return secretCheck{}
	}
	return secretCheck{k.namespace, k.print}
}

func (check secretCheck) dialect() dialect.SecretCheck {
	return dialect.SecretCheckOf(string(check.namespace), check.print)
}

// A secretUse is a check that a connection has made, and how it is used.
type secretUse struct {
	check secretCheck
	keys  int           // keys that need it and are on the connection, or requested
	used  time.Duration // when one was last requested or given back
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

	// secretIdle is how many heartbeats a check is kept without a key that needs it.
	secretIdle = 15

	// maxSecrets bounds the checks of a connection: each takes a place in the
	// server's lock table. Beyond it those without keys are given back first.
	maxSecrets = 100
)

// hasSecretLocked reports whether c has made the check that k needs.
func (c *connection) hasSecretLocked(k *keyState) bool {
	check := sessionKeyOf(k).check
	return check == secretCheck{} || c.secrets[check] != nil
}

// wantSecretLocked notes that the check of k is needed, and returns nil, or why it
// cannot be made now. A check for which the next statement has no room is for the
// one after it. So is another secret of the same namespace.
func (c *connection) wantSecretLocked(k *keyState) error {
	needed := sessionKeyOf(k).check
	conflict, known := c.slot.s.conflicts[needed]
	inUse := c.secretsInUseLocked()
	switch {
	case known && now() < conflict.retryAt:
		return conflict.err
	case inUse >= maxSecrets:
		return errMaxSecrets
	case inUse+len(c.wantedSecrets) < maxSecrets &&
		!slices.ContainsFunc(c.wantedSecrets, func(check secretCheck) bool { return check.namespace == needed.namespace }):
		c.wantedSecrets = append(c.wantedSecrets, needed)
	}
	return nil
}

var errMaxSecrets = fmt.Errorf("%w: keys of more than %d namespaces with a secret are in use on one connection", ErrCapacity, maxSecrets)

// countLocked notes that a key that needs the check is requested (1), or was
// denied or given back (-1).
func (use *secretUse) countLocked(change int) {
	if use != nil {
		use.keys += change
		use.used = now()
	}
}

// secretsInUseLocked counts the checks that a key needs.
func (c *connection) secretsInUseLocked() (n int) {
	for _, use := range c.secrets {
		if use.keys > 0 {
			n++
		}
	}
	return n
}

// dropSecretsLocked takes out the checks to give back: those that no key has needed
// for long. If the wanted ones make too many, it also takes out the ones that have
// been unused for longest.
func (c *connection) dropSecretsLocked(wanted int) (dropped []secretCheck) {
	idle := make([]secretCheck, 0, len(c.secrets))
	for check, use := range c.secrets {
		if use.keys == 0 {
			idle = append(idle, check)
		}
	}
	slices.SortFunc(idle, func(a, b secretCheck) int { return cmp.Compare(c.secrets[a].used, c.secrets[b].used) })
	for _, check := range idle {
		long := now()-c.secrets[check].used >= secretIdle*c.slot.s.options.heartbeat
		if long || len(c.secrets)+wanted > maxSecrets {
			delete(c.secrets, check)
			dropped = append(dropped, check)
		}
	}
	return dropped
}

func inDialect(checks []secretCheck) (all []dialect.SecretCheck) {
	for _, check := range checks {
		all = append(all, check.dialect())
	}
	return all
}

// prepareSecretsLocked takes the checks that are wanted and, about once a heartbeat,
// those to give back.
func (c *connection) prepareSecretsLocked() bool {
	if len(c.wantedSecrets)+len(c.secrets) == 0 {
		return false
	}
	if len(c.wantedSecrets) == 0 && now()-c.secretsSeen < c.slot.s.options.heartbeat {
		return false
	}
	c.secretsSeen = now()
	r := &c.round
	r.wanted = slices.DeleteFunc(c.wantedSecrets, func(check secretCheck) bool { return c.secrets[check] != nil })
	r.dropped = c.dropSecretsLocked(len(r.wanted))
	c.wantedSecrets = nil
	return len(r.wanted)+len(r.dropped) > 0
}

// completeSecrets notes which checks c has now, and which conflict with another
// session's.
func (c *connection) completeSecrets(err error) {
	if err != nil && !c.stillHolds(err) {
		return
	}
	s := c.slot.s
	var news []Namespace
	s.table.mu.Lock()
	c.renewLocked(now())
	for i, check := range c.round.wanted {
		was, known := s.conflicts[check]
		delete(s.conflicts, check)
		switch {
		case err != nil:
			s.noteConflictLocked(check, fromDialect(err))
		case c.round.refused[i]:
			s.noteConflictLocked(check, conflictError(check.namespace))
			if !known || !errors.Is(was.err, ErrNotExclusive) {
				news = append(news, check.namespace)
			}
		default:
			c.secrets[check] = &secretUse{check: check, used: now()}
		}
	}
	s.table.mu.Unlock()
	for _, n := range news {
		s.options.log.Error("sqllock: this namespace is in use with another key secret: its keys are refused",
			"namespace", string(n))
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

// beyondSecretsLocked reports whether states need more checks than c may have
// in addition to those that are in use.
func (c *connection) beyondSecretsLocked(states []*keyState) bool {
	if len(states) <= maxSecrets-len(c.secrets) {
		return false
	}
	needed := make(map[secretCheck]bool)
	for _, k := range states {
		if check := sessionKeyOf(k).check; check != (secretCheck{}) {
			needed[check] = true
		}
	}
	for check, use := range c.secrets {
		if use.keys > 0 {
			needed[check] = true
		}
	}
	return len(needed) > maxSecrets
}

// missingLocked is one of states whose check c has not made, and why it cannot be
// made now, if that is known.
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
