package postgres_test

import (
	"context"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// To open a session, with the proof that locks exclude.
func BenchmarkOpen(b *testing.B) {
	for _, driver := range pgtest.Drivers() {
		b.Run(driver, func(b *testing.B) {
			db := open(b, driver, pgtest.Database(b))
			for b.Loop() {
				s, err := postgres.Dialect{}.Open(context.Background(), db, settings)
				if err != nil {
					b.Fatal(err)
				}
				s.Destroy()
			}
		})
	}
}
