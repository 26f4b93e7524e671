package lockwatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// The text has keys as numbers, and what the registry has. No name can forge a
// line or a cell.
func TestSnapshotString(t *testing.T) {
	t.Parallel()
	h := registered(5, 50)
	h.Process.Application, h.Registration.Name, h.Registration.Namespace = "shop latchkey", "ann\nforged", "export"
	h.Registration.Holder = "right\u202eleft"
	pair := held(6, 0)
	pair.Key = sqllock.Pair(-7, 8)
	s := &lockwatch.Snapshot{At: noon.Add(2 * time.Second), Holders: holders{h, pair, {Key: sqllock.Pair(9, 9), SecretCheck: true}},
		Waiters: waiters{waits(1, 50, 5), polls(5, 50, 60)}, Blocked: []lockwatch.Blocked{blocked(8, 9)},
		Heartbeats: lockwatch.TableRead, Waits: lockwatch.TableMissing}
	text := s.String()
	for _, want := range []string{`ann\nforged`, `right\u202eleft`, "shop latchkey", "export", "3s", "2s ago", "-7, 8", `session 5  1, holding ann\nforged`,
		"a row, a table or the like  -          8", "table latchkey_waits is missing. Create the tables of lockwatch.Schema"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, unwanted := range []string{"\nforged", "9, 9", "latchkey_heartbeats"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("%q in\n%s", unwanted, text)
		}
	}
	t.Logf("\n%s", text)

	for name, want := range map[string]string{"bob  billing/1": `"bob  billing/1"`, `"x"`: `"\"x\""`, "-": `"-"`, "ann": "ann", " ": `" "`} {
		h.Registration.Name = name
		if text := (&lockwatch.Snapshot{At: noon, Holders: holders{h}}).String(); !strings.Contains(text, "  "+want+"  ") {
			t.Errorf("name %q is not written %s:\n%s", name, want, text)
		}
	}
	h.Registration.Name = strings.Repeat("ä", 100_000)
	if got := lockwatch.NewView(&lockwatch.Snapshot{Holders: holders{h}}).Locks(0, 1)[0].Name; len(got) > 203 || !strings.HasSuffix(got, "ä…") {
		t.Errorf("a long name is %q", got)
	}
	lease := lockwatch.Holder{Key: sqllock.ID(7), Lease: &lockwatch.Lease{Session: 1, Holder: "host/1", Acquired: noon, Expires: noon.Add(3 * time.Second)}}
	text = (&lockwatch.Snapshot{Dialect: sqllock.SQLite, At: noon.Add(time.Second), Holders: holders{lease}, Expired: holders{lease}}).String()
	for _, want := range []string{"7         lease", "1s   ends in 2s", "host/1", "locks whose lease has expired, so that they are free: 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "table") {
		t.Errorf("it misses a table:\n%s", text)
	}
	cycle := &lockwatch.Snapshot{At: noon, Holders: holders{held(1, 10), held(2, 20)}, Waiters: waiters{waits(1, 20, 2), waits(2, 10, 1)}}
	if text := cycle.String(); !strings.HasSuffix(text, "cycle: process 1 waits for key 20 -> process 2 waits for key 10 (the server ends it)\n") {
		t.Errorf("no cycle at the end of\n%s", text)
	}
}
