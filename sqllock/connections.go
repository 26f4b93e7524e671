package sqllock

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// What each connection of a Session holds, to be compared with what the
// database says.

// A Connection is what a [Session] believes of one of its connections. An audit
// compares it with what the database has for that session. Each key of Held and
// Shared must be there. Each other lock must be in Pending or be a secret check.
//
// Invariant: no key is in two of the lists, or twice in one. The keys are
// numbers, without a namespace: they equal those of [ID] and [Pair].
type Connection struct {
	// The server process: its number, and when it started by the server's clock.
	// On MySQL and MariaDB it is the connection's id, without a start. PID is 0
	// if it is not known, as behind a pooler or in a lease table.
	PID   int64
	Start time.Time

	LeaseRemaining time.Duration // how long the locks are certainly held without another response; 0 at the end

	Held    []Key // exclusively; no statement is under way for them, or about to be
	Shared  []Key // the same, by readers
	Pending []Key // the server may have them or not: a statement requests or releases them, or is about to release them

	// SecretChecks counts the shared locks on Pairs for which no caller asked.
	// They stand for key secrets (see [Namespace.Keyed]), or show releases in
	// other processes that this Session waits for them. While they change, the
	// server may have more.
	SecretChecks int
}

// Connections returns what the Session believes of each of its connections, all
// of one moment. A connection that is lost is not in the list, nor is one that
// is being opened. It asks no database. It takes some 50 µs for each thousand
// locks, and calls for locks wait meanwhile.
func (s *Session) Connections() []Connection {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.connectionsLocked()
}

func (s *Session) connectionsLocked() (list []Connection) {
	place := make(map[*connection]int)
	for _, sl := range s.slots {
		if c := sl.conn; c != nil && !c.dead.Load() {
			place[c] = len(list)
			list = append(list, c.describeLocked())
		}
	}
	for k := range s.table.keys.all() {
		own := sessionKeyOf(k)
		c := own.conn
		if k.phase == requested {
			c = own.slot.conn
		}
		if i, ok := place[c]; ok && k.phase >= requested {
			list[i].add(k)
		}
	}
	return list
}

// describeLocked returns c without its keys.
func (c *connection) describeLocked() Connection {
	d := Connection{LeaseRemaining: c.remaining(), SecretChecks: len(c.secrets) + c.bells.marksLocked()}
	if b, ok := c.session.(dialect.Backend); ok {
		p := b.Process()
		d.PID = p.PID
		if p.Start != 0 {
			d.Start = time.UnixMicro(p.Start)
		}
	}
	return d
}

// add puts the key of k, which the connection has or may have, into its list.
func (d *Connection) add(k *keyState) {
	list := &d.Pending
	switch {
	case k.phase == held && k.mode == shared:
		list = &d.Shared
	case k.phase == held:
		list = &d.Held
	}
	*list = append(*list, Key{space: k.key.Space, number: k.key.ID})
}
