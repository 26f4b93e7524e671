package dialect

import (
	"crypto/sha256"
	"encoding/binary"
)

// A Claim says that who has it makes the keys of a namespace, its Class, with the
// secret that has this Print. It is a shared advisory lock on (class, print): two
// sessions have different prints of one class never.
type Claim struct {
	Class, Print int32
}

// ClaimOf is the claim of a namespace with the secret of a fingerprint. The
// class is the first four bytes of SHA-256("latchkey secret:" + namespace).
func ClaimOf(namespace string, fingerprint uint32) Claim {
	sum := sha256.Sum256([]byte("latchkey secret:" + namespace))
	return Claim{int32(binary.BigEndian.Uint32(sum[:])), int32(fingerprint)}
}
