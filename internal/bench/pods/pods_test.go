package pods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	os.Exit(pgtest.Main(m))
}

// Pods of both kinds lock the same names: the comparison is of the same work.
func TestPodsExclude(t *testing.T) {
	dsn := pgtest.Database(t)
	sessions, err := Sessions(t.Context(), dsn, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFleet(t, sessions)
	pooled, err := Pooled(t.Context(), dsn, 2, 3, true)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFleet(t, pooled)
	all := append(sessions.Pods, pooled.Pods...)
	for i, holder := range all {
		held, err := holder.Acquire(t.Context(), "hot")
		if err != nil {
			t.Fatalf("pod %d: %v", i, err)
		}
		for j, other := range all {
			if _, err := other.Acquire(t.Context(), "hot"); i != j && !errors.Is(err, locks.ErrBusy) {
				t.Errorf("pod %d, of a name that pod %d holds: %v, want ErrBusy", j, i, err)
			}
		}
		if err := held.Release(t.Context()); err != nil {
			t.Errorf("pod %d: %v", i, err)
		}
	}
	if sessions.Exchanges() == 0 || pooled.Exchanges() != 0 {
		t.Errorf("%d and %d exchanges, want some and none", sessions.Exchanges(), pooled.Exchanges())
	}
}

func closeFleet(t *testing.T, f *Fleet) {
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// What cannot open all its pods opens none.
func TestOpenFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dsn := pgtest.Database(t)
	if _, err := Sessions(ctx, dsn, 3); err == nil {
		t.Error("a fleet of Sessions opened although its context has ended")
	}
	if _, err := Pooled(ctx, dsn, 3, 2, true); err == nil {
		t.Error("a fleet of warm pools opened although its context has ended")
	}
}

func TestIsTooManyConnections(t *testing.T) {
	tests := []struct {
		err  error
		want bool
	}{
		{nil, false},
		{locks.ErrBusy, false},
		{&pgconn.PgError{Code: "53300"}, true},
		{fmt.Errorf("failed to connect: %w", &pgconn.PgError{Code: "53300"}), true},
		{&pgconn.PgError{Code: "53200"}, false},
	}
	for _, tt := range tests {
		if got := IsTooManyConnections(tt.err); got != tt.want {
			t.Errorf("IsTooManyConnections(%v) = %v", tt.err, got)
		}
	}
}
