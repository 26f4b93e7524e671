package postgres

import (
	"context"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// To open a session, with the proof that locks exclude.
func BenchmarkOpen(b *testing.B) {
	for _, driver := range pgtest.Drivers() {
		b.Run(driver, func(b *testing.B) {
			db := openPool(b, driver, pgtest.Database(b))
			for b.Loop() {
				s, err := Dialect{}.Open(context.Background(), db, patient)
				must(b, err)
				s.Destroy()
			}
		})
	}
}
