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

// CheckSecrets implements dialect.Session.
func (s *session) CheckSecrets(wanted, dropped []dialect.SecretCheck) (conflicts []bool, err error) {
	conflicts = make([]bool, len(wanted))
	err = s.roundTrip(func(all bool) {
		for _, c := range dropped {
			delete(s.checks, c)
		}
		for i, c := range wanted {
			if conflicts[i] = s.server.conflicts(c); all && !conflicts[i] {
				s.checks[c] = true
			}
		}
	})
	return conflicts, err
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
