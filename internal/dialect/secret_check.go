package dialect

import (
	"crypto/sha256"
	"encoding/binary"
)

// A SecretCheck says that who has it makes the keys of a namespace, its Class, with the
// secret that has this Fingerprint. It is a shared advisory lock on (class, fingerprint): two
// sessions have different fingerprints of one class never.
type SecretCheck struct {
	Class, Fingerprint int32
}

// SecretCheckOf is the check of a namespace with the secret of a fingerprint. The
// class is the first four bytes of SHA-256("latchkey secret:" + namespace).
func SecretCheckOf(namespace string, fingerprint uint32) SecretCheck {
	sum := sha256.Sum256([]byte("latchkey secret:" + namespace))
	return SecretCheck{int32(binary.BigEndian.Uint32(sum[:])), int32(fingerprint)}
}
