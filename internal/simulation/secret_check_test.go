package simulation

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// checkSecretOf checks the rules for a key made with a secret, when s takes k.
// server.mu is held.
func (s *session) checkSecretOf(k dialect.Key) {
	for i, secret := range secrets {
		if dialectKey(secret.Key("three")) != k {
			continue
		}
		if !s.checks[secretCheckOf(i)] {
			s.server.world.wrong("a key made with a secret is taken without a secret check", "")
		}
		if s.server.owners[dialectKey(secrets[1-i].Key("three"))] != nil {
			s.server.world.wrong("two clients with different secrets are granted keys of one name", "")
		}
	}
}

// secretCheckOf returns the check that a session must hold before it takes keys
// made with the ith secret.
func secretCheckOf(i int) dialect.SecretCheck {
	mac := hmac.New(sha256.New, []byte(secretTexts[i]))
	mac.Write([]byte("#"))
	return dialect.SecretCheckOf(string(namespace), max(binary.BigEndian.Uint32(mac.Sum(nil)), 1))
}

// UseSecret implements dialect.Session in two statements, as databases do. One
// looks and takes, and the other one looks again. A statement has its effect even
// if it fails.
func (s *session) UseSecret(c dialect.SecretCheck) (conflict bool, err error) {
	for range 2 {
		err := s.roundTrip(func(bool) {
			if conflict = s.server.conflicts(c); conflict {
				delete(s.checks, c)
			} else {
				s.checks[c] = true
			}
		})
		if err != nil || conflict {
			return conflict && err == nil, err
		}
	}
	return false, nil
}

// DropSecret implements dialect.Session.
func (s *session) DropSecret(c dialect.SecretCheck) error {
	return s.roundTrip(func(bool) { delete(s.checks, c) })
}

// conflicts reports whether a session holds a check of the same class as c and of
// another secret. srv.mu is held.
func (srv *server) conflicts(c dialect.SecretCheck) bool {
	for s := range srv.sessions {
		for other := range s.checks {
			if other.Class == c.Class && other.Fingerprint != c.Fingerprint {
				return true
			}
		}
	}
	return false
}
