package databases

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// What a lockMover moves.
var (
	tries    = []string{"pg_try_advisory_lock"}
	takes    = []string{"pg_try_advisory_lock", "pg_advisory_unlock("}
	allLocks = []string{"advisory"} // also questions to pg_locks
)

// Open detects a pooler that takes advisory locks on a connection of its own.
// Such a lock does not end with the session, and with one connection for all
// clients it excludes no client.
func TestOpenRefusesPoolerThatMovesLocks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		pooler moverVariant
	}{
		{"all, one connection", moverVariant{oneForAll: true, moves: allLocks, simple: true, prepared: true}},
		{"all, one connection, lies", moverVariant{oneForAll: true, moves: allLocks, simple: true, prepared: true, hidesPID: true, pgLocks: everyonesLie}},
		{"all, a connection each", moverVariant{moves: allLocks, simple: true, prepared: true}},
		{"takes and releases, a connection each", moverVariant{moves: takes, simple: true, prepared: true}},
		{"takes and releases, hidden process", moverVariant{moves: takes, simple: true, prepared: true, hidesPID: true}},
		{"takes and releases, own lie", moverVariant{moves: takes, simple: true, prepared: true, hidesPID: true, pgLocks: ownLie}},
		{"takes only", moverVariant{moves: tries, simple: true, prepared: true, hidesPID: true, pgLocks: everyonesLie}},
		{"takes only, own lie", moverVariant{moves: tries, simple: true, prepared: true, hidesPID: true, pgLocks: ownLie}},
		{"simple protocol, a connection each", moverVariant{moves: takes, simple: true}},
		{"simple protocol, takes only", moverVariant{moves: tries, simple: true}},
		{"simple protocol, consistent lie", moverVariant{moves: takes, simple: true, hidesPID: true, pgLocks: everyonesLie}},
		{"prepared, one connection", moverVariant{oneForAll: true, moves: takes, prepared: true}},
		{"prepared, one connection, hidden process", moverVariant{oneForAll: true, moves: takes, prepared: true, hidesPID: true}},
		{"prepared, a connection each, hidden process", moverVariant{moves: takes, prepared: true, hidesPID: true}},
		{"prepared, a connection each, consistent lie", moverVariant{moves: takes, prepared: true, hidesPID: true, pgLocks: everyonesLie}},
	}
	for _, tt := range tests {
		for _, driver := range pgtest.Drivers() {
			t.Run(tt.name+"/"+driver, func(t *testing.T) {
				t.Parallel()
				dsn := startLockMover(t, pgtest.Database(t), tt.pooler)
				s, err := sqllock.Open(t.Context(), open(t, driver, dsn))
				if s != nil {
					_ = s.Close()
				}
				if !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), "WithLeaseTable()") && !strings.Contains(err.Error(), "did not exclude") {
					t.Fatalf("Open: %v, want ErrNotExclusive with advice", err)
				}
				table := session(t, open(t, driver, unprepared(driver, dsn)), sqllock.WithLeaseTable()) // what it advises
				if err := mustLock(t, table, sqllock.ID(1)).Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			})
		}
	}
}

// A pooler that moves nothing is accepted: the double itself disturbs nothing.
func TestOpenAcceptsPoolerThatMovesNothing(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := startLockMover(t, pgtest.Database(t), moverVariant{})
			if err := mustLock(t, session(t, open(t, driver, dsn)), sqllock.ID(1)).Unlock(); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		})
	}
}

// A pooler that moves all locks, shows the client's own process for all of them,
// and also to other clients, looks like the server itself. While its background
// connection lives as long as its client, locks exclude as they should.
func TestConsistentLieExcludes(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := startLockMover(t, pgtest.Database(t), moverVariant{moves: takes, simple: true, prepared: true, hidesPID: true, pgLocks: everyonesLie})
			a, b := session(t, open(t, driver, dsn)), session(t, open(t, driver, dsn))
			lock := mustLock(t, a, sqllock.ID(1))
			if _, err := b.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("TryLock of a held key: %v, want ErrHeld", err)
			}
			_ = a.Close() // with its lock
			if err := lock.Err(); err == nil {
				t.Error("the lock has outlived its Session")
			}
			lockertest.Eventually(t, "the key is free", func() bool {
				lock, err := b.TryLock(context.Background(), sqllock.ID(1))
				if err == nil {
					_ = lock.Unlock()
				}
				return err == nil
			})
		})
	}
}
