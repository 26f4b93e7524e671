package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// The lease bounds the server's sockets. So a client that is cut off in the
// middle of a statement does not keep its locks.
func TestCutOff(t *testing.T) {
	for _, tt := range []struct {
		lease                       time.Duration
		idle, interval, count, user int
	}{
		{2 * time.Second, 1, 1, 1, 2000},
		{2500 * time.Millisecond, 1, 1, 2, 2500},
		{11900 * time.Millisecond, 6, 1, 6, 11_900},
		{10 * time.Second, 5, 1, 5, 10_000},
		{time.Hour, 1800, 360, 5, 3_600_000},
		{24 * 24 * time.Hour, 32767, 32767, 63, 2_073_600_000},
	} {
		t.Run(tt.lease.String(), func(t *testing.T) {
			t.Parallel()
			// Without tcp_user_timeout the server's kernel ends the connection
			// after this time. If that were sooner, another client would get the
			// locks of a holder.
			if silence := time.Duration(tt.idle+tt.count*tt.interval) * time.Second; silence < tt.lease {
				t.Errorf("keepalives end the connection after %v", silence)
			}
			s := opened(t, "pgx", pgtest.Database(t)) // sets what an hour needs, which no busy machine meets
			if tt.lease != patient.Lease {
				execute(t, s.conn, "SELECT "+strings.Join(cutOff(tt.lease), ", "))
			}
			for name, want := range map[string]int{
				"tcp_keepalives_idle": tt.idle, "tcp_keepalives_interval": tt.interval, "tcp_keepalives_count": tt.count,
				"tcp_user_timeout": tt.user, "transaction_timeout": tt.user,
			} {
				var version, got int
				err := s.conn.QueryRowContext(t.Context(), `SELECT current_setting('server_version_num')::int,
					coalesce((SELECT setting::int FROM pg_settings WHERE name = $1), -1)`, name).Scan(&version, &got)
				must(t, err)
				if name == "transaction_timeout" && version < 170000 {
					want = -1
				}
				if got != want {
					t.Errorf("%s is %d, want %d", name, got, want)
				}
			}
		})
	}
}
