package postgres

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// listen makes s listen to the bells of keys.
func listen(t *testing.T, s dialect.Session, keys ...dialect.Key) {
	t.Helper()
	var bells []dialect.Bell
	for _, k := range keys {
		bells = append(bells, dialect.BellOf(k))
	}
	if complete, err := s.(dialect.Listener).Listen(bells); err != nil || !complete {
		t.Fatalf("Listen: complete %v, %v", complete, err)
	}
}

// A witness hears all bells that it is told to.
type witness struct{ conn *pgx.Conn }

func newWitness(t *testing.T, dsn string, keys ...dialect.Key) witness {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, k := range keys {
		_, err := conn.Exec(t.Context(), "LISTEN "+channelOf(k))
		must(t, err)
	}
	return witness{conn}
}

// heard returns the channels that have been notified so far, each once. The
// server delivers what was committed before with the response to a statement.
func (w witness) heard(t *testing.T) (channels []string) {
	t.Helper()
	_, err := w.conn.Exec(t.Context(), "SELECT 1")
	must(t, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		n, err := w.conn.WaitForNotification(over)
		if err != nil {
			slices.Sort(channels)
			return slices.Compact(channels)
		}
		channels = append(channels, n.Channel)
	}
}

func channelOf(k dialect.Key) string { return fmt.Sprintf("latchkey_%d", dialect.BellOf(k)) }

// A release rings for the keys to whose bells another session listens, in each
// form of the statement.
func TestReleaseRings(t *testing.T) {
	shared := big(7)[0].Shared()
	tests := []struct {
		name            string
		released, rings []dialect.Key
	}{
		{"one", big(1), big(1)},
		{"several", big(1, 2, 1<<62, -5), big(2, 1<<62, -5)},
		{"pairs", pairs(1, 1<<31-1, -1<<31), pairs(1, -1<<31)},
		{"both", append(big(3), pairs(4)...), pairs(4)},
		{"a reader", []dialect.Key{shared}, []dialect.Key{shared}},
		{"none", big(1, 2), nil},
	}
	for _, driver := range pgtest.Drivers() {
		for _, tt := range tests {
			t.Run(driver+" "+tt.name, func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.Database(t)
				waiter, holder := connect(t, openPool(t, driver, dsn)), connect(t, openPool(t, driver, dsn))
				w := newWitness(t, dsn, append(slices.Clone(tt.released), big(99)...)...)
				listen(t, waiter, append(slices.Clone(tt.rings), big(99)...)...)
				exchange(t, holder, dialect.Batch{Try: tt.released})
				exchange(t, holder, dialect.Batch{Release: tt.released})
				var want []string
				for _, k := range tt.rings {
					want = append(want, channelOf(k))
				}
				slices.Sort(want)
				if got := w.heard(t); !slices.Equal(got, want) {
					t.Errorf("rang %v, want %v", got, want)
				}
			})
		}
	}
}
