package lockdoctor_test

import (
	"database/sql"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

// since skips the test if the server is older than a major version.
func since(t *testing.T, db *sql.DB, major int) {
	t.Helper()
	if dbtest.Number(t, db, "SELECT current_setting('server_version_num')::int") < major*10000 {
		t.Skipf("PostgreSQL %d is the first that has this", major)
	}
}

// An ordinary role cannot have the connections that are reserved: for
// superusers, and since PostgreSQL 16 also for roles with a certain right.
func TestPlantedReservedConnections(t *testing.T) {
	for _, tt := range []struct {
		setting, value string
		major          int
	}{
		{"superuser_reserved_connections", "17", 14},
		{"reserved_connections", "14", 16}, // and 3 for superusers
	} {
		t.Run(tt.setting, func(t *testing.T) {
			dbtest.EachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
				p := newPlace(t, driver, cluster, 0)
				since(t, p.admin, tt.major)
				mustBeHealthy(t, examine(t, p.db))
				p.execute(t, "ALTER SYSTEM SET "+tt.setting+" = "+tt.value)
				if err := cluster.Restart(false); err != nil {
					t.Fatal(err)
				}
				p.db.SetMaxOpenConns(2) // beside that of the test
				mustFind(t, examine(t, p.db), "connections", lockdoctor.Error, "Raise max_connections")
			}, pgtest.WithSettings(map[string]string{"max_connections": "20", "fsync": "on", "synchronous_commit": "on"}))
		})
	}
}
