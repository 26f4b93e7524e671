package sqllock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A claim says that this process makes the keys of a namespace with a certain
// secret. Processes with different secrets would make different keys of one
// name, and so let two in: a connection without the claim takes no such key,
// and no two have claims of one namespace with different secrets.
//
// It is asked for when a key is wanted, and given back when no key that needs it
// has been held on the connection for a while: who does not use a secret does
// not dispute another. The zero claim is that of keys without a secret.
type claim struct {
	namespace Namespace
	print     uint32
}

// claim is what a connection must have before it asks for k.
func (k Key) claim() claim {
	if k.print == 0 {
		return claim{}
	}
	return claim{k.namespace, k.print}
}

func (c claim) dialect() dialect.SecretCheck {
	return dialect.SecretCheckOf(string(c.namespace), c.print)
}

// A stake is a claim that a connection has.
type stake struct {
	claim claim
	held  int           // keys that need it and are on the connection, or asked for
	used  time.Duration // when one was last asked for or given back
}

// A dispute is a claim that was refused.
type dispute struct {
	err   error
	again time.Duration // it is not asked for before that
}

const (
	// claimPause is how long after a refusal a claim is asked for again, if it is
	// wanted, less a random part.
	claimPause = 500 * time.Millisecond

	// claimIdle is how many heartbeats a claim is kept without a key that needs it.
	claimIdle = 15

	// maxClaims bounds the claims of a connection: each is a place in the server's
	// lock table. Beyond it those without keys are given back first.
	maxClaims = 100
)

// hasLocked reports whether l may ask for e's key.
func (l *lease) hasLocked(e *entry) bool {
	return e.claim == claim{} || l.claims[e.claim] != nil
}

// wantLocked notes that e's claim is needed, and returns nil; or why it is not to be
// had just now. What there is no room for in the next statement of claims is for the
// one after it; so is another secret of the same namespace.
func (l *lease) wantLocked(e *entry) error {
	d, disputed := l.backend.s.disputes[e.claim]
	inUse := l.claimsInUseLocked()
	switch {
	case disputed && now() < d.again:
		return d.err
	case inUse >= maxClaims:
		return errMaxClaims
	case inUse+len(l.wanted) < maxClaims &&
		!slices.ContainsFunc(l.wanted, func(c claim) bool { return c.namespace == e.claim.namespace }):
		l.wanted = append(l.wanted, e.claim)
	}
	return nil
}

var errMaxClaims = fmt.Errorf("%w: keys of more than %d namespaces with a secret are in use on one connection", ErrCapacity, maxClaims)

// usedLocked notes that a key that needs s is asked for (1), or was refused or given
// back (-1).
func (s *stake) usedLocked(change int) {
	if s != nil {
		s.held += change
		s.used = now()
	}
}

// claimsInUseLocked counts the claims that a key needs.
func (l *lease) claimsInUseLocked() (n int) {
	for _, s := range l.claims {
		if s.held > 0 {
			n++
		}
	}
	return n
}

// dropClaimsLocked takes out the claims to be given back: those that are idle, and
// if with those that are wanted there are too many, those that have been so for longest.
func (l *lease) dropClaimsLocked(wanted int) (dropped []claim) {
	idle := make([]claim, 0, len(l.claims))
	for c, s := range l.claims {
		if s.held == 0 {
			idle = append(idle, c)
		}
	}
	slices.SortFunc(idle, func(a, b claim) int { return cmp.Compare(l.claims[a].used, l.claims[b].used) })
	for _, c := range idle {
		long := now()-l.claims[c].used >= claimIdle*l.backend.s.options.heartbeat
		if long || len(l.claims)+wanted > maxClaims {
			delete(l.claims, c)
			dropped = append(dropped, c)
		}
	}
	return dropped
}

// stakeClaims asks for the claims that are wanted, and about once a heartbeat gives idle
// ones back. It reports whether it sent anything.
func (l *lease) stakeClaims() (sent bool) {
	wanted, dropped := l.takeClaims()
	if len(wanted)+len(dropped) == 0 {
		return false
	}
	l.watch.expect()
	disputed, err := l.session.CheckSecrets(inDialect(wanted), inDialect(dropped))
	l.watch.answered()
	if err == nil || l.bears(err) {
		l.staked(wanted, disputed, err)
	}
	return true
}

func inDialect(claims []claim) (all []dialect.SecretCheck) {
	for _, c := range claims {
		all = append(all, c.dialect())
	}
	return all
}

// takeClaims is what to ask for now, and what to give back.
func (l *lease) takeClaims() (wanted, dropped []claim) {
	t := l.backend.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.dead.Load() || len(l.wanted)+len(l.claims) == 0 {
		return nil, nil
	}
	if len(l.wanted) == 0 && now()-l.claimsSeen < l.backend.s.options.heartbeat {
		return nil, nil
	}
	l.claimsSeen = now()
	wanted = slices.DeleteFunc(l.wanted, func(c claim) bool { return l.claims[c] != nil })
	dropped = l.dropClaimsLocked(len(wanted))
	l.wanted = nil
	if len(wanted)+len(dropped) > 0 {
		l.sendingLocked(l.backend.oldest) // who has queued waits for this, too
	}
	return wanted, dropped
}

// staked notes the answers.
func (l *lease) staked(claims []claim, disputed []bool, err error) {
	s := l.backend.s
	var news []Namespace
	s.table.mu.Lock()
	l.answeredLocked(now())
	for i, c := range claims {
		was, known := s.disputes[c]
		delete(s.disputes, c)
		switch {
		case err != nil:
			s.disputeLocked(c, fromDialect(err))
		case disputed[i]:
			s.disputeLocked(c, disputedError(c.namespace))
			if !known || !errors.Is(was.err, ErrNotExclusive) {
				news = append(news, c.namespace)
			}
		default:
			l.claims[c] = &stake{claim: c, used: now()}
		}
	}
	s.table.mu.Unlock()
	for _, n := range news {
		s.options.log.Error("sqllock: this namespace is in use with another key secret: its keys are refused",
			"namespace", string(n))
	}
}

func (s *Session) disputeLocked(c claim, err error) {
	if len(s.disputes) >= maxClaims {
		for old, d := range s.disputes {
			if now() >= d.again {
				delete(s.disputes, old)
			}
		}
	}
	s.disputes[c] = dispute{err, now() + jitter(claimPause)}
}

func disputedError(n Namespace) error {
	return fmt.Errorf("%w: the namespace %q is in use with another key secret: give all processes the same, and stop those with the other one",
		ErrNotExclusive, string(n))
}

// disputed is why those who wait for e wait in vain; nil if it is not so, or they
// have not asked lately.
func (s *Session) disputed(e *entry) error {
	if d := s.disputes[e.claim]; now() < d.again+2*pollAway {
		return d.err
	}
	return nil
}
