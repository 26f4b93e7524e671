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
