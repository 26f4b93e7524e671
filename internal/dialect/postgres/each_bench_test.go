package postgres

import (
	"fmt"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// BenchmarkEach measures a statement that takes one key of each of three groups
// for each request, and one that gives them back. Beside it are the same keys
// without groups.
func BenchmarkEach(b *testing.B) {
	s := connect(b, openPool(b, "pgx", pgtest.Database(b)))
	for _, requests := range []int{1, 256} {
		var keys []dialect.Key
		var groups, singles []dialect.Group
		for i := range int64(requests) {
			keys = append(keys, big(3*i, 3*i+1, 3*i+2)...)
			groups = append(groups,
				dialect.Group{Keys: big(3 * i)}, dialect.Group{Keys: big(3*i+1, 10000+i, 20000+i, 30000+i)},
				dialect.Group{Keys: big(3*i + 2), Last: true})
			singles = append(singles, dialect.Group{Keys: big(3 * i)}, dialect.Group{Keys: big(3*i + 1)}, dialect.Group{Keys: big(3*i + 2), Last: true})
		}
		for name, batch := range map[string]dialect.Batch{"keys": {Try: keys}, "groups": {Each: groups}, "singles": {Each: singles}} {
			b.Run(fmt.Sprintf("%s/requests=%d", name, requests), func(b *testing.B) {
				for b.Loop() {
					for _, one := range []dialect.Batch{batch, {Release: keys}} {
						if err := s.Exchange(&one); err != nil || len(one.Busy)+len(one.NotHeld) > 0 {
							b.Fatal(err, one.Busy, one.NotHeld)
						}
					}
				}
			})
		}
	}
}
