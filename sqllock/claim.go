package sqllock

import (
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A claim says that this process makes the keys of a namespace with a certain
// secret. Processes with different secrets would make different keys of one
// name, and so let two in: a connection that does not have the claim takes no
// such key, and the database grants it to no two connections with different secrets.
type claim struct {
	dialect.Claim
	namespace Namespace

	// protected by table.mu
	err   error         // why it was not granted when it was asked for last; nil: it was, or never asked for
	again time.Duration // it is not asked for before that
}

// claimPause is how long after a refusal a claim is asked for again, less a
// random part.
const claimPause = 500 * time.Millisecond

// claimLocked is the claim that keys such as key need.
func (s *Session) claimLocked(key Key) *claim {
	for _, c := range s.claims {
		if c.namespace == key.namespace && c.Print == int32(key.print) {
			return c
		}
	}
	c := &claim{Claim: dialect.ClaimOf(string(key.namespace), key.print), namespace: key.namespace}
	s.claims = append(s.claims, c)
	return c
}

// claimDueLocked reports whether l is to ask for a claim.
func (l *lease) claimDueLocked() bool {
	if len(l.claims) == len(l.backend.s.claims) {
		return false
	}
	return len(l.dueClaimsLocked()) > 0
}

// dueClaimsLocked is the claims that l has not, and has not been refused just now.
func (l *lease) dueClaimsLocked() (due []*claim) {
	for _, c := range l.backend.s.claims {
		if !l.claims[c] && (c.err == nil || now() >= c.again) {
			due = append(due, c)
		}
	}
	return due
}

// stakeClaims asks for the claims that l has not. It reports whether it sent anything
// and l lives.
func (l *lease) stakeClaims() bool {
	claims := l.takeClaims()
	if len(claims) == 0 {
		return false
	}
	wanted := make([]dialect.Claim, len(claims))
	for i, c := range claims {
		wanted[i] = c.Claim
	}
	l.watch.expect()
	disputed, err := l.session.Claim(wanted)
	l.watch.answered()
	if err != nil && !survived(err) {
		l.lose(err.Error())
		return false
	}
	t := l.backend.s.table
	t.mu.Lock()
	alive := l.answeredLocked(now())
	var news []*claim
	for i, c := range claims {
		switch {
		case err != nil:
			l.refuseLocked(c, fromDialect(err))
		case disputed[i]:
			if !errors.Is(c.err, ErrNotExclusive) {
				news = append(news, c)
			}
			l.refuseLocked(c, disputedError(c.namespace))
		default:
			c.err = nil
			l.claims[c] = true
		}
	}
	t.mu.Unlock()
	for _, c := range news {
		l.backend.s.options.log.Error("sqllock: another process uses this namespace with another key secret: its keys are refused",
			"namespace", string(c.namespace))
	}
	return alive
}

// refuseLocked notes that l did not get c.
func (l *lease) refuseLocked(c *claim, err error) {
	c.err, c.again = err, now()+jitter(claimPause)
}

func disputedError(n Namespace) error {
	return fmt.Errorf("%w: another process uses the namespace %q with another key secret: give all processes the same, and stop those with the other one",
		ErrNotExclusive, string(n))
}

// takeClaims is the claims to ask for now.
func (l *lease) takeClaims() []*claim {
	t := l.backend.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.dead.Load() || len(l.claims) == len(l.backend.s.claims) {
		return nil
	}
	claims := l.dueClaimsLocked()
	if len(claims) > 0 {
		l.sendingLocked(l.backend.oldest) // who has queued waits for this, too
	}
	return claims
}

// hasLocked reports whether l may ask for e's key.
func (l *lease) hasLocked(e *entry) bool { return e.claim == nil || l.claims[e.claim] }
