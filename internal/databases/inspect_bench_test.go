package databases

import (
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// BenchmarkInspect looks at 10,000 locks of Sessions. Package lockwatch has the one
// on PostgreSQL.
func BenchmarkInspect(b *testing.B) {
	keys := make([]sqllock.Key, 10_000)
	for i := range keys {
		keys[i] = sqllock.ID(int64(i) * 7919)
	}
	for _, k := range []struct {
		name, driver string
		dsn          func(b *testing.B) string
	}{
		{"SQLite", "sqlite", func(b *testing.B) string { return "file:" + b.TempDir() + "/app.db" }},
		{"MariaDB", "mysql", func(b *testing.B) string { return mariadbtest.New(b).Database(b) }},
	} {
		b.Run(k.name, func(b *testing.B) {
			dsn := k.dsn(b)
			s := session(b, open(b, k.driver, dsn), sqllock.WithMaxHeld(len(keys)))
			for part := range slices.Chunk(keys, 500) {
				if _, err := s.TryLockAll(b.Context(), part...); err != nil {
					b.Fatal(err)
				}
			}
			db := open(b, k.driver, dsn)
			for b.Loop() {
				if seen, err := lockwatch.Inspect(b.Context(), db); err != nil || len(seen.Holders) != len(keys) {
					b.Fatal(err)
				}
			}
		})
	}
}
