package postgres

import (
	"crypto/rand"
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// Terminate ends those of the given processes that are still the same. A later
// process with the id of an earlier one goes on, and so does a process of a role
// that this role may not see. Processes that have gone are not reported.
func TestTerminate(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	admin := openPool(t, "pgx", dsn)
	role := "outsider_" + strings.ToLower(rand.Text())
	execute(t, admin, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() { execute(t, admin, "DROP ROLE "+role) })
	scheme, rest, _ := strings.Cut(dsn, "://")
	_, rest, _ = strings.Cut(rest, "@")
	one, two, outsider := opened(t, "pgx", dsn), opened(t, "pgx", dsn), opened(t, "pgx", scheme+"://"+role+"@"+rest)
	lives := func(s *session) bool {
		var n int
		must(t, admin.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", s.pid).Scan(&n))
		return n == 1
	}
	later := two.Process()
	later.Start--
	renamed := opened(t, "pgx", dsn) // as by a pooler, before another client gets the process
	execute(t, renamed.conn, "RESET application_name")
	for _, tt := range []struct {
		by         *session
		left, want []dialect.Process
	}{
		{one, []dialect.Process{later}, nil},
		{outsider, []dialect.Process{one.Process(), two.Process()}, nil},
		{one, []dialect.Process{renamed.Process()}, nil},
		{one, []dialect.Process{{PID: 2147483647, Start: 1}, later, outsider.Process()}, []dialect.Process{outsider.Process()}},
	} {
		there, err := tt.by.Terminate(tt.left)
		if err != nil || !slices.Equal(there, tt.want) {
			t.Errorf("Terminate(%v): %v, %v, want %v", tt.left, there, err, tt.want)
		}
	}
	eventually(t, "the process that was meant ends", func() bool { return !lives(outsider) })
	if there, err := one.Terminate([]dialect.Process{outsider.Process()}); err != nil || len(there) != 0 {
		t.Errorf("Terminate of what is gone: %v, %v", there, err)
	}
	if !lives(one) || !lives(two) || !lives(renamed) {
		t.Error("a process was ended that was not meant")
	}
}
