package sqllock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A secretCheck says that this process makes the keys of a namespace with a certain
// secret. Processes with different secrets would make different keys of one
// name, and so let two in: a connection without the claim takes no such key,
// and no two have claims of one namespace with different secrets.
//
// It is asked for when a key is wanted, and given back when no key that needs it
// has been held on the connection for a while: who does not use a secret does
// not dispute another. The zero claim is that of keys without a secret.
type secretCheck struct {
	namespace Namespace
	print     uint32
}

// secretCheck is what a connection must have before it asks for k.
func (k Key) secretCheck() secretCheck {
	if k.print == 0 {
		return secretCheck{}
	}
	return secretCheck{k.namespace, k.print}
}

func (check secretCheck) dialect() dialect.Claim {
	return dialect.ClaimOf(string(check.namespace), check.print)
}

// A secretUse is a claim that a connection has.
type secretUse struct {
	check secretCheck
	keys  int           // keys that need it and are on the connection, or asked for
	used  time.Duration // when one was last asked for or given back
}

// A secretConflict is a claim that was refused.
type secretConflict struct {
	err     error
	retryAt time.Duration // it is not asked for before that
}

const (
	// claimPause is how long after a refusal a claim is asked for again, if it is
	// wanted, less a random part.
	secretPause = 500 * time.Millisecond

	// claimIdle is how many heartbeats a claim is kept without a key that needs it.
	secretIdle = 15

	// maxClaims bounds the claims of a connection: each is a place in the server's
	// lock table. Beyond it those without keys are given back first.
	maxSecrets = 100
)

// hasSecretLocked reports whether l may ask for e's key.
func (c *connection) hasSecretLocked(k *keyState) bool {
	check := sessionKeyOf(k).check
	return check == secretCheck{} || c.secrets[check] != nil
}

// wantSecretLocked notes that e's claim is needed, and returns nil; or why it is not to be
// had just now. What there is no room for in the next statement of claims is for the
// one after it; so is another secret of the same namespace.
func (c *connection) wantSecretLocked(k *keyState) error {
	needed := sessionKeyOf(k).check
	conflict, disputed := c.slot.s.conflicts[needed]
	inUse := c.secretsInUseLocked()
	switch {
	case disputed && now() < conflict.retryAt:
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

// countLocked notes that a key that needs s is asked for (1), or was refused or given
// back (-1).
func (use *secretUse) countLocked(change int) {
	if use != nil {
		use.keys += change
		use.used = now()
	}
}

// secretsInUseLocked counts the claims that a key needs.
func (c *connection) secretsInUseLocked() (n int) {
	for _, use := range c.secrets {
		if use.keys > 0 {
			n++
		}
	}
	return n
}

// dropSecretsLocked takes out the claims to be given back: those that are idle, and
// if with those that are wanted there are too many, those that have been so for longest.
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

// checkSecrets asks for the claims that are wanted, and about once a heartbeat gives idle
// ones back. It reports whether it sent anything.
func (c *connection) checkSecrets() (sent bool) {
	wanted, dropped := c.prepareSecrets()
	if len(wanted)+len(dropped) == 0 {
		return false
	}
	c.watch.expect()
	disputed, err := c.session.Claim(toDialectChecks(wanted), toDialectChecks(dropped))
	c.watch.answered()
	if err == nil || c.stillHolds(err) {
		c.secretsChecked(wanted, disputed, err)
	}
	return true
}

func toDialectChecks(claims []secretCheck) (all []dialect.Claim) {
	for _, check := range claims {
		all = append(all, check.dialect())
	}
	return all
}

// prepareSecrets is what to ask for now, and what to give back.
func (c *connection) prepareSecrets() (wanted, dropped []secretCheck) {
	t := c.slot.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.dead.Load() || len(c.wantedSecrets)+len(c.secrets) == 0 {
		return nil, nil
	}
	if len(c.wantedSecrets) == 0 && now()-c.secretsSeen < c.slot.s.options.heartbeat {
		return nil, nil
	}
	c.secretsSeen = now()
	wanted = slices.DeleteFunc(c.wantedSecrets, func(check secretCheck) bool { return c.secrets[check] != nil })
	dropped = c.dropSecretsLocked(len(wanted))
	c.wantedSecrets = nil
	if len(wanted)+len(dropped) > 0 {
		c.sendingLocked(c.slot.oldest) // who has queued waits for this, too
	}
	return wanted, dropped
}

// secretsChecked notes the answers.
func (c *connection) secretsChecked(claims []secretCheck, disputed []bool, err error) {
	s := c.slot.s
	var news []Namespace
	s.table.mu.Lock()
	c.answeredLocked(now())
	for i, check := range claims {
		was, known := s.conflicts[check]
		delete(s.conflicts, check)
		switch {
		case err != nil:
			s.noteConflictLocked(check, fromDialect(err))
		case disputed[i]:
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

// conflictLocked is why a key that needs check is denied; nil if it is not, or
// nobody has asked lately.
func (s *Session) conflictLocked(check secretCheck) error {
	if conflict := s.conflicts[check]; now() < conflict.retryAt+2*pollAway {
		return conflict.err
	}
	return nil
}
