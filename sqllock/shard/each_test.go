package shard_test

import (
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/shard"
)

// A call for groups works while all keys are on one shard, and otherwise takes none.
func TestTryEach(t *testing.T) {
	a, b := sqllock.NewMemory(), sqllock.NewMemory()
	s := shard.New(a, b)
	of := [2][]sqllock.Key{}
	for i := range of {
		of[i] = []sqllock.Key{keyOf(s, i, 0), keyOf(s, i, 1), keyOf(s, i, 2)}
	}
	for _, keys := range of {
		locks, err := lockertest.TryEach(t.Context(), s, [][]sqllock.Key{keys[:1], keys[1:]})
		if err != nil || len(locks) != 2 {
			t.Fatalf("keys of one shard: %v", err)
		}
		var full *inside.FullError
		if _, err := lockertest.TryEach(t.Context(), s, [][]sqllock.Key{keys[1:], keys[:1]}); !errors.As(err, &full) || full.Level != 1 {
			t.Errorf("a full group: %v", err)
		}
		if err := locks.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := lockertest.TryEach(t.Context(), s, [][]sqllock.Key{of[0][:1], of[1][:1]}); err == nil || errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("keys of two shards: %v", err)
	}
	for i, keys := range of {
		if _, err := []*sqllock.Memory{a, b}[i].TryLock(t.Context(), keys[0]); err != nil {
			t.Errorf("a key stayed behind: %v", err)
		}
	}
}
