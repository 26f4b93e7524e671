package dialect

import (
	"crypto/sha256"
	"encoding/binary"
)

// A SecretCheck is a namespace and the secret with which a session makes its
// keys.
//
// Invariant: no two sessions of a database use checks of one Class with
// different Fingerprints at the same time.
type SecretCheck struct {
	Class       int32 // the namespace
	Fingerprint int32 // the secret
}

// SecretCheckOf returns the check of a namespace and of the secret with a
// fingerprint. Its Class is the first four bytes of
// SHA-256("latchkey secret:" + namespace).
func SecretCheckOf(namespace string, fingerprint uint32) SecretCheck {
	sum := sha256.Sum256([]byte("latchkey secret:" + namespace))
	return SecretCheck{int32(binary.BigEndian.Uint32(sum[:])), int32(fingerprint)}
}

// A SecretChecker is a Session that can find out whether all sessions of the
// database make the keys of a namespace with one secret.
type SecretChecker interface {
	// UseSecret makes the session a user of c until its end. It reports a conflict
	// if another session uses the same Class with another Fingerprint. Then this
	// session is not a user. It changes nothing if the session is a user already.
	//
	// After an error the session may be a user of c or not. The error is like that
	// of Exchange.
	UseSecret(c SecretCheck) (conflict bool, err error)
}
