package campaign

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// promises are what a store promises in which rows.
type promises struct {
	// bounds say how soon the keys of a victim are granted again.
	bounds []bound

	// closes lists the rows in which a connection is closed and both sides
	// notice.
	closes []int

	// parts lists the rows in which client and server cannot reach each other.
	// There the client must know of the loss before the server frees the lock.
	parts []int

	// notifies lists the rows whose faults cost locks at a known moment.
	notifies []int

	// news lists the rows in which the server ends a session, and the client is
	// notified a little later. Until then two locks of a key may be valid.
	news []int

	// lingers is how long the locks of a killed process are in force.
	lingers time.Duration

	// tokensRise: a lock draws a later token after a restart of its server.
	tokensRise bool

	// watched: a closed connection is noticed at once.
	watched bool

	busy time.Duration // see Plan
}

// leaseTableSlack is what the next caller needs on a lease table: statements that
// remove what has expired, and take the key.
const leaseTableSlack = 500 * time.Millisecond

// promisesOf returns the promises of a store to sessions with this lease.
func promisesOf(store fleet.Store, lease time.Duration) promises {
	leaseAndMore := lease + 500*time.Millisecond
	switch store {
	case fleet.Leases, fleet.PooledLeases:
		return promises{
			bounds: []bound{
				{[]int{1, 2, 5}, check.FromBegin, leaseAndMore + leaseTableSlack},
				// Statements may reach the server until the client gives up.
				{[]int{4}, check.FromBegin, leaseAndMore + lease + leaseTableSlack},
				{[]int{32}, check.FromEnd, 2 * time.Second},
			},
			parts:    []int{2, 4, 5, 32},
			notifies: []int{2, 4, 5, 32},
			lingers:  lease, tokensRise: true,
		}
	case fleet.SQLite:
		return promises{
			bounds: []bound{
				{[]int{1}, check.FromBegin, leaseAndMore + leaseTableSlack},
				{[]int{2, 36}, check.FromEnd, 2 * time.Second}, // the file may be locked meanwhile
			},
			parts:    []int{2, 36},
			notifies: []int{2, 36},
			lingers:  lease, tokensRise: true,
		}
	case fleet.MariaDB:
		return promises{
			bounds: []bound{
				{[]int{1, 7, 8, 11, 12, 13, 25}, check.FromBegin, time.Second},
				{[]int{2, 4, 5}, check.FromBegin, leaseAndMore},
				{[]int{15, 31, 32, 33}, check.FromEnd, 2 * time.Second},
			},
			closes:   []int{8, 13, 15, 31},
			parts:    []int{2, 4, 5, 32},
			notifies: []int{2, 4, 5, 7, 8, 13, 15, 25, 31, 32, 33},
			news:     []int{7, 8, 11, 12, 13, 25, 31},
			watched:  true,
		}
	}
	return promises{
		bounds: []bound{
			// The server sees that the connection has ended.
			{[]int{1, 7, 8, 11, 12, 13, 20, 25}, check.FromBegin, time.Second},
			// The lease passes.
			{[]int{2, 4, 5}, check.FromBegin, leaseAndMore},
			// Nothing happens until it is mended; then what is overdue does.
			{[]int{16}, check.FromEnd, time.Second},
			// The server starts anew, or goes on.
			{[]int{14, 15, 31, 32}, check.FromEnd, 2 * time.Second},
		},
		closes:   []int{8, 13, 14, 15, 31},
		parts:    []int{2, 4, 5, 16, 32},
		notifies: []int{2, 4, 5, 7, 8, 13, 14, 15, 16, 20, 25, 31, 32},
		news:     []int{7, 8, 11, 12, 13, 20, 25, 31},
		watched:  true,
	}
}

// promises returns those of r's store.
func (r *Result) promises() promises {
	p := promisesOf(r.settings.Store, r.settings.Lease)
	p.busy = r.busy
	return p
}

// linearization returns what check.Linearize needs to know of r's store.
func (r *Result) linearization() check.Params {
	return check.Params{Timeout: linearizeWithin, Lease: r.settings.Lease, Kills: kills, Lingers: r.promises().lingers}
}

// fenced checks what the fence let through.
func (r *Result) fenced(events []history.Event) error {
	return check.Fenced(events, r.writes, r.promises().tokensRise)
}
