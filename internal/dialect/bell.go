package dialect

// A Bell is what the release of a key rings, if a session of the database
// listens to it. Several keys may have one bell, so a bell says only that one
// of them may be free.
type Bell int32

// Bells is how many bells there are. Each is from 1 to Bells.
const Bells = 1 << 24

// BellOf returns the bell of k, in any mode. The database finds the same number
// from the ID of a key.
func BellOf(k Key) Bell { return Bell((k.ID^k.ID>>32)&(Bells-1)) + 1 }

// A Listener is a Session that can listen to bells. A bell that rings makes its
// Socket readable. The next statement of any kind takes that off the socket, and
// may do so unnoticed.
//
// A release rings its bell after the key is free. It rings for other sessions
// only. A key that becomes free in another way rings none: with the end of a
// session or of a transaction, or by another version of this module.
type Listener interface {
	Session

	// CanListen reports whether Listen is of use. It is not where the role may
	// not use NOTIFY, or the driver is not known.
	CanListen() bool

	// Listen listens to bells, and to no other bell any more. It reports
	// whether each release from now on rings them. Otherwise it must be called
	// again. It changes no key. Its error is like that of Exchange. After an
	// error the session listens to no bell for certain.
	Listen(bells []Bell) (complete bool, err error)
}
