package lockdoctor_test

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

// The statements of a fix are statements, and the check passes after them.
func TestFixesWork(t *testing.T) {
	cluster := pgtest.New(t)
	const dead = `INSERT INTO latchkey_heartbeats SELECT 1, 1, 'epoch', 0, n, '', '', '', 'epoch', 'epoch', 'epoch', false FROM generate_series(1, 1001) AS n`
	const moved = `CREATE SCHEMA "Ops"; GRANT USAGE ON SCHEMA "Ops" TO ROLE; ALTER TABLE latchkey_heartbeats SET SCHEMA "Ops"; ALTER TABLE latchkey_waits SET SCHEMA "Ops"; `
	inSchema := lockdoctor.WithSchema("Ops")
	for i, tt := range []struct {
		name, plant, check string
		byRole             bool // who may carry out the fix; otherwise a superuser
		opts               []lockdoctor.Option
	}{
		{"a timeout of the role", "ALTER ROLE ROLE SET lock_timeout = '10ms'", "timeouts", true, nil},
		{"read-only transactions of the role", "ALTER ROLE ROLE SET default_transaction_read_only = on", "primary", true, nil},
		{"no constraint", "ALTER TABLE latchkey_fence DROP CONSTRAINT latchkey_fence_stale", "tables", false, nil},
		{"not logged", "ALTER TABLE latchkey_responses SET UNLOGGED", "tables", false, nil},
		{"row security", "ALTER TABLE latchkey_fence ENABLE ROW LEVEL SECURITY", "tables", false, nil},
		{"row security of the registry in a schema", moved + `ALTER TABLE "Ops".latchkey_waits ENABLE ROW LEVEL SECURITY`, "tables", false, []lockdoctor.Option{inSchema}},
		{"dead processes", dead, "registry", true, nil},
		{"dead processes in a schema", dead + "; " + moved, "registry", true, []lockdoctor.Option{inSchema}},
	} {
		for _, driver := range pgtest.Drivers() {
			t.Run(tt.name+"/"+driver, func(t *testing.T) {
				p := newPlace(t, driver, cluster, 100+i)
				statement(tt.plant)(t, p)
				found, _ := examine(t, p.db, tt.opts...).Find(tt.check)
				if found.State == lockdoctor.OK || found.Fix == "" {
					t.Fatalf("%+v", found)
				}
				for line := range strings.Lines(found.Fix) {
					fix, _, isStatement := strings.Cut(line, ";")
					switch {
					case !isStatement:
					case tt.byRole:
						p.executeAsRole(t, fix)
					default:
						dbtest.Execute(t, p.admin, fix)
					}
				}
				p.reopen(t)
				if after, _ := examine(t, p.db, tt.opts...).Find(tt.check); after.State != lockdoctor.OK {
					t.Errorf("after %q: %+v", found.Fix, after)
				}
			})
		}
	}
}

// executeAsRole runs a statement as the role, in a transaction that may write.
func (p *place) executeAsRole(t *testing.T, statement string) {
	t.Helper()
	conn, err := p.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	dbtest.ExecuteOn(t, conn, "SET default_transaction_read_only = off")
	dbtest.ExecuteOn(t, conn, statement)
}
