package sqllock

import "time"

// An Observer is told what happens to the connections of a [Session], for
// metrics and logs. Each func may be nil.
//
// A connection calls the funcs one after the other, and sends nothing meanwhile.
// So they must not block or panic, and must not acquire or unlock a lock. They
// may call Stats and Connections. Several connections may call them at the same
// time. They get no key.
type Observer struct {
	// Exchanged: the database has answered a statement of locks, which took so
	// long and requested or released so many keys. A heartbeat has none. These
	// are the statements of [Stats].Exchanges.
	Exchanged func(took time.Duration, keys int)

	// Connected: a connection is open, and takes locks from now on.
	Connected func()

	// Lost: a connection was lost, with so many locks. cause is one of the words
	// of [Stats].LossesBy. The holders of the locks have been told before.
	Lost func(cause string, locks int)
}

// WithObserver has o told what happens to the connections of the Session. It
// may be given several times, and each Observer is told.
func WithObserver(o Observer) Option {
	return func(opts *options) { opts.observers = append(opts.observers, o) }
}

// observers are those of a Session. None of their methods is called with
// table.mu held.
type observers []Observer

func (os observers) exchanged(took time.Duration, keys int) {
	for i := range os {
		if os[i].Exchanged != nil {
			os[i].Exchanged(took, keys)
		}
	}
}

func (os observers) connected() {
	for i := range os {
		if os[i].Connected != nil {
			os[i].Connected()
		}
	}
}

func (os observers) lost(cause string, locks int) {
	for i := range os {
		if os[i].Lost != nil {
			os[i].Lost(cause, locks)
		}
	}
}
