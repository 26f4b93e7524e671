package session

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/leasetable"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/internal/protocol"
)

// The leases of docs/protocol.md are those of the dialects, and a client relies
// on its locks for as long as the page says.
func TestProtocolLease(t *testing.T) {
	t.Parallel()
	dialects := map[string][]dialect.Dialect{
		"PostgreSQL, MariaDB, MySQL, lease tables on them": {postgres.Dialect{}, mysql.Dialect{}, leasetable.PostgreSQL{}, leasetable.MySQL{}},
		"SQLite": {leasetable.SQLite{}},
		"TiDB":   {leasetable.MySQL{TiDB: true}},
	}
	for _, row := range protocol.Table(t, "database") {
		if len(dialects[row[0]]) == 0 {
			t.Errorf("the page has %q", row[0])
		}
		for _, d := range dialects[row[0]] {
			o := Options{Dialect: d, Lease: d.Traits().Lease, LeaseSet: true}
			o.Suit()
			if got := [3]string{o.Lease.String(), o.validFor().String(), o.Heartbeat.String()}; got != [3]string(row[1:]) {
				t.Errorf("%s, %T: %v, on the page %v", row[0], d, got, row[1:])
			}
		}
		delete(dialects, row[0])
	}
	if len(dialects) > 0 {
		t.Errorf("not on the page: %v", dialects)
	}
}
