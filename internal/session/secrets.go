package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A Secret is a namespace and the secret with which this process makes its keys.
//
// Processes with different secrets make different keys of one name, and both
// would be granted. So on PostgreSQL each connection becomes a user of the check
// of a secret: at the first key under it, and as soon as it is opened. A database
// has no two users of one namespace with different secrets, but for the moment
// in which both connect.
type Secret struct {
	Namespace   string
	Fingerprint uint32
}

// A secretState is what is known of a secret that the Session has used.
// Session.mu protects it.
type secretState struct {
	err     error         // why its keys are denied; nil: they are not, or that is not known yet
	retryAt time.Duration // after err it is not checked before
	ready   chan struct{} // closed when the check that a caller waits for is complete; nil: none does
}

// secretPause is how long after a refusal a secret is checked again, if it is
// wanted, less a random part.
const secretPause = 500 * time.Millisecond

// maxSecrets bounds the secrets of a Session: each takes a place in the server's
// lock table.
const maxSecrets = 100

var errMaxSecrets = fmt.Errorf("%w: keys of more than %d namespaces with a secret are in use", ErrCapacity, maxSecrets)

// UseSecret returns nil once keys under secret may be requested, or why not. A
// call that waits goes on while that may change. If ctx ends meanwhile, the error
// also says why there was no success.
func (s *Session) UseSecret(ctx context.Context, secret Secret, waits bool) error {
	for why := error(nil); ; {
		ready, err := s.checkSecret(secret)
		if ready == nil && (err == nil || !waits || err == errMaxSecrets || errors.Is(err, keytable.ErrClosed)) {
			return err
		}
		pause := s.Timeout()
		if ready == nil {
			why, pause = err, keytable.AwayFor
		}
		select {
		case <-ready:
		case <-time.After(pause):
			if ready != nil {
				why = ErrNoAnswer
			}
			if !waits {
				return why
			}
		case <-s.ctx.Done():
			return keytable.ErrClosed
		case <-ctx.Done():
			if why != nil {
				return fmt.Errorf("%w: %w", why, ctx.Err())
			}
			return ctx.Err()
		}
	}
}

// checkSecret returns a channel to wait for, or nil and the result.
func (s *Session) checkSecret(secret Secret) (ready chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.secrets[secret]
	used := slices.ContainsFunc(s.slots, func(sl *slot) bool { return sl.conn != nil && sl.conn.uses[secret] })
	switch {
	case s.closed:
		return nil, keytable.ErrClosed
	case s.options.Dialect != nil && !s.options.Dialect.Traits().ChecksSecrets:
		return nil, nil
	case state == nil && len(s.secrets) >= maxSecrets:
		return nil, errMaxSecrets
	case state == nil:
		state = new(secretState)
		s.secrets[secret] = state
	case state.err != nil && Now() < state.retryAt:
		return nil, state.err
	case state.err == nil && used:
		return nil, nil
	}
	if state.ready == nil {
		state.ready = make(chan struct{})
	}
	for _, sl := range s.slots {
		signal(sl.wake)
	}
	return state.ready, nil
}

// awaitsSecret reports whether a caller waits for a check. s.mu is held.
func (s *Session) awaitsSecret() bool {
	for _, state := range s.secrets {
		if state.ready != nil {
			return true
		}
	}
	return false
}

// checkSecret is the errand that checks a secret which c does not use.
func (c *connection) checkSecret(bool) *errand {
	for secret, state := range c.s.secrets {
		if c.uses[secret] || state.err != nil && state.ready == nil {
			continue
		}
		conflict := false
		return &errand{
			send: func() (err error) {
				check := dialect.SecretCheckOf(secret.Namespace, secret.Fingerprint)
				conflict, err = c.session.(dialect.SecretChecker).UseSecret(check)
				return err
			},
			complete: func(err error) (log func()) { return c.checked(secret, state, conflict, err) },
		}
	}
	return nil
}

// checked notes the result of a check. s.mu is held.
func (c *connection) checked(secret Secret, state *secretState, conflict bool, err error) (log func()) {
	if conflict && err == nil {
		if logger := c.s.options.Log; state.err == nil {
			log = func() {
				logger.Error("sqllock: this namespace is in use with another key secret: its keys are refused", "namespace", secret.Namespace)
			}
		}
		err = fmt.Errorf("%w: the namespace %q is in use with another key secret: give all processes the same, and stop those with the other one",
			ErrNotExclusive, secret.Namespace)
	} else {
		err = FromDialect(err)
	}
	state.err, state.retryAt = err, Now()+jitter(secretPause)
	if err == nil {
		c.uses[secret] = true
	}
	if state.ready != nil {
		close(state.ready)
		state.ready = nil
	}
	return log
}
