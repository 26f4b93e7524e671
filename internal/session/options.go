package session

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// Options are the settings of a Session. Package sqllock documents each, and
// makes them by Defaults and Suit.
type Options struct {
	Lease       time.Duration // 0: that of the dialect, which is not known yet
	LeaseSet    bool
	Heartbeat   time.Duration // likewise
	BeatSet     bool
	MaxHeld     int
	MaxConns    int // 0: by MaxHeld
	AsyncUnlock bool
	Lazy        bool
	IdleClose   time.Duration   // 0: not at all
	Dialect     dialect.Dialect // nil: what the database says that it is
	Table       bool            // lease tables
	Socket      func(any) net.Conn
	Log         *slog.Logger
	Observers   []Observer
	Registry    bool
	Schema      string // of the registry
	HolderName  string // in the registry; "": host and process

	NewHold func() *keytable.Hold

	perConn      int           // locks held on a connection before another is opened; 0: none is
	closeTimeout time.Duration // what the end of a connection may take
	timeout      time.Duration // AnswerTimeout, or longer in tests
	bootTime     func() time.Duration
}

// An Observer is told what happens to the connections. Each func may be nil.
type Observer struct {
	Exchanged func(took time.Duration, keys int)
	Connected func()
	Lost      func(cause string, locks int)
}

// Defaults and limits.
const (
	MaxHeld  = 4000
	MinLease = 2 * time.Second
	MaxLease = 24 * 24 * time.Hour // PostgreSQL counts milliseconds in 32 bits

	// fullStatement is how many keys make up for what a statement costs by itself.
	// Such a statement is not held back for more keys, and twice as many may go in
	// two.
	fullStatement = 48
)

// The clock assumptions behind the promise (docs/safety.md). The rates of two
// clocks differ by at most clockDrift. The client stops trusting its locks
// earlier than the server, by a marginPart of the lease. Half of that margin is
// for a step of the server's clock (σ), and half for late timers.
const (
	clockDrift = 0.001 // ρ
	marginPart = 5     // m = lease/5
)

// AnswerTimeout is how long the database may leave callers without a response
// before they get ErrUnavailable.
const AnswerTimeout = 900 * time.Millisecond

// minIdleClose is the least of IdleClose. To open a connection takes several
// round trips and a login, which no caller should pay at each request.
const minIdleClose = time.Second

// Defaults returns options that no caller has changed.
func Defaults() Options {
	return Options{MaxHeld: MaxHeld, Log: slog.Default(), bootTime: bootTime}
}

// Suit sets what depends on the other options and on the dialect, as far as it
// is known.
func (o *Options) Suit() {
	if o.Dialect != nil {
		traits := o.Dialect.Traits()
		o.perConn, o.closeTimeout = traits.HeldPerSession, traits.CloseTimeout
		if machine, ok := o.Dialect.(dialect.BootClock); ok {
			o.bootTime = machine.BootTime
		}
		if !o.LeaseSet {
			o.Lease = bound.Of(traits.Lease)
		}
	}
	o.timeout = o.bound(AnswerTimeout)
	if !o.BeatSet {
		o.Heartbeat = o.Lease / 5
	}
}

// Timeout returns how long callers wait for a response.
func (o *Options) Timeout() time.Duration { return o.timeout }

// Validate reports options that are out of range, that contradict each other,
// or that the dialect does not support.
func (o *Options) Validate() error {
	known := o.LeaseSet || o.Dialect != nil
	switch {
	case o.Registry && o.Dialect != nil && !o.Dialect.Traits().Registers:
		return fmt.Errorf("sqllock: WithRegistry is for PostgreSQL's advisory locks: leave it out: %w", errors.ErrUnsupported)
	case known && o.Lease < MinLease:
		return fmt.Errorf("sqllock: the lease of %v is too short for clock steps and a slow network: use %v or more", o.Lease, MinLease)
	case o.Lease > MaxLease:
		return fmt.Errorf("sqllock: the lease of %v is too long: use %v or less", o.Lease, MaxLease)
	case (known || o.BeatSet) && o.Heartbeat <= 0:
		return errors.New("sqllock: the heartbeat must be positive")
	case known && o.validFor() <= 3*o.Heartbeat:
		return fmt.Errorf("sqllock: a heartbeat of %v is too slow for a lease of %v: use %v or less", o.Heartbeat, o.Lease, (o.validFor()/3 - 1).Truncate(time.Millisecond))
	case o.IdleClose != 0 && o.IdleClose < minIdleClose:
		return fmt.Errorf("sqllock: WithIdleClose of %v would open a connection for nearly every call: use %v or more", o.IdleClose, minIdleClose)
	case o.MaxHeld <= 0:
		return errors.New("sqllock: WithMaxHeld needs a positive number")
	case o.MaxConns < 0:
		return errors.New("sqllock: WithMaxConns needs a positive number")
	}
	return nil
}

// maxConns returns how many connections the Session may have: one for each
// thousand locks that it may hold, if the caller has set no number.
func (o *Options) maxConns() int {
	if o.MaxConns > 0 {
		return o.MaxConns
	}
	return (o.MaxHeld + dialect.HeldPerConnection - 1) / dialect.HeldPerConnection
}

// bound returns d, or more in tests on a busy machine. The bounds of a Session
// whose lease the test has made short stay short too.
func (o *Options) bound(d time.Duration) time.Duration {
	if o.LeaseSet && o.Lease < bound.Of(MinLease) {
		return d
	}
	return bound.Of(d)
}

// validFor is how long after sending a statement that was answered the locks
// are certainly held: T(1−ρ) − m.
func (o *Options) validFor() time.Duration {
	return o.Lease - time.Duration(clockDrift*float64(o.Lease)) - o.Lease/marginPart
}
