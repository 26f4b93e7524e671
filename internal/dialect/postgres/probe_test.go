package postgres

import (
	"context"
	"database/sql"
	"net"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A server responds, whether it offers TLS or not. A listener that accepts a
// connection and stays silent does not, nor does an address without a listener.
func TestResponds(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	port, err := pgtest.TakePort()
	must(t, err)
	defer pgtest.GivePortBack(port)
	for _, tt := range []struct {
		name    string
		address net.Addr
		want    bool
		within  time.Duration
	}{
		{"a server", addressOf(t, pgtest.New(t)), true, time.Minute},
		{"a server that offers TLS", addressOf(t, pgtest.New(t, pgtest.WithTLS())), true, time.Minute},
		{"silence", silent.Addr(), false, 50 * time.Millisecond},
		{"nothing", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}, false, time.Minute},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), tt.within)
		if got := (Dialect{}).Responds(ctx, tt.address); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		cancel()
	}
}

// addressOf returns the address at which a driver finds c.
func addressOf(t *testing.T, c *pgtest.Cluster) net.Addr {
	t.Helper()
	db, err := sql.Open("pgx", c.DSN(""))
	must(t, err)
	defer db.Close()
	conn, err := db.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	return dbconn.SocketOf(conn, nil).RemoteAddr()
}
