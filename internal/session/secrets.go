package session

import (
	"context"
	"fmt"
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

// secrets are those that the Session has used.
type secrets map[Secret]*secretState

// A secretState is what is known of a secret. Session.mu protects it.
type secretState struct {
	err     error         // why its keys are denied; nil: they are not, or that is not known yet
	retryAt time.Duration // after err it is not checked before
	ready   chan struct{} // closed when the check under way is complete; nil: none is
	users   map[*connection]bool
}

// secretPause is how long after a refusal a secret is checked again, if it is
// wanted, less a random part.
const secretPause = 500 * time.Millisecond

// maxSecrets bounds the secrets of a Session: each takes a place in the server's
// lock table.
const maxSecrets = 100

var errMaxSecrets = fmt.Errorf("%w: keys of more than %d namespaces with a secret are in use", ErrCapacity, maxSecrets)

// UseSecret returns nil once keys under secret may be requested, or why not. It
// waits for the first check.
func (s *Session) UseSecret(ctx context.Context, secret Secret) error {
	timer := time.NewTimer(s.Timeout())
	defer timer.Stop()
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return keytable.ErrClosed
		}
		state := s.secrets[secret]
		if state == nil && len(s.secrets) >= maxSecrets {
			s.mu.Unlock()
			return errMaxSecrets
		}
		if state == nil {
			state = &secretState{users: make(map[*connection]bool)}
			s.secrets[secret] = state
		}
		ready, err := s.checkSecret(state)
		s.mu.Unlock()
		if ready == nil {
			return err
		}
		select {
		case <-ready:
		case <-s.ctx.Done():
			return keytable.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return errNoAnswer
		}
	}
}

// checkSecret returns a channel to wait for, or nil and the result.
func (s *Session) checkSecret(state *secretState) (ready chan struct{}, err error) {
	if s.options.Dialect != nil && !s.options.Dialect.Traits().ChecksSecrets {
		return nil, nil
	}
	used := false
	for _, sl := range s.slots {
		used = used || sl.conn != nil && state.users[sl.conn]
	}
	switch {
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

// checking reports whether a caller waits for a check.
func (all secrets) checking() bool {
	for _, state := range all {
		if state.ready != nil {
			return true
		}
	}
	return false
}

// forget forgets c, which has ended.
func (all secrets) forget(c *connection) {
	for _, state := range all {
		delete(state.users, c)
	}
}

// A secretErrand is the errand that checks a secret which the connection does
// not use.
type secretErrand struct {
	secret   Secret
	conflict bool
}

func (e *secretErrand) due(c *connection, _, _ bool) bool {
	for secret, state := range c.s.secrets {
		if !state.users[c] && (state.err == nil || state.ready != nil) {
			e.secret = secret
			return true
		}
	}
	return false
}

func (e *secretErrand) send(c *connection) (err error) {
	check := dialect.SecretCheckOf(e.secret.Namespace, e.secret.Fingerprint)
	e.conflict, err = c.session.(dialect.SecretChecker).UseSecret(check)
	return err
}

func (e *secretErrand) complete(c *connection, err error, _ bool) bool {
	if err != nil && !c.stillHolds(err) {
		return true
	}
	s := c.s
	s.mu.Lock()
	c.renew(Now())
	state := s.secrets[e.secret]
	news := false
	switch {
	case err != nil:
		state.deny(FromDialect(err))
	case e.conflict:
		news = state.err == nil
		state.deny(fmt.Errorf("%w: the namespace %q is in use with another key secret: give all processes the same, and stop those with the other one",
			ErrNotExclusive, e.secret.Namespace))
	default:
		state.err, state.users[c] = nil, true
	}
	if state.ready != nil {
		close(state.ready)
		state.ready = nil
	}
	s.mu.Unlock()
	if news {
		s.options.Log.Error("sqllock: this namespace is in use with another key secret: its keys are refused", "namespace", e.secret.Namespace)
	}
	return true
}

// deny notes that the check has failed.
func (state *secretState) deny(err error) {
	state.err, state.retryAt = err, Now()+jitter(secretPause)
}
