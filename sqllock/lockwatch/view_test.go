package lockwatch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A caller of a Session that holds nothing waits. The Snapshot says which process
// that is, and where its client is.
func TestWhichProcessWaits(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := withRegistry(t, driver, dsn)
		key := sqllock.Namespace("export").Key("user-1")
		mustLock(t, session(t, driver, dsn), key)
		waiting := session(t, driver, dsn+"&application_name=exports-b", sqllock.WithRegistry(""), sqllock.WithHolder("host-b/2"), sqllock.WithHeartbeat(20*time.Millisecond))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _, _ = waiting.Lock(ctx, key) }()
		defer func() { cancel(); <-done }()
		var w lockwatch.Waiter
		lockertest.Eventually(t, "the wait is registered", func() bool {
			_, waiters := inspect(t, db).Find(key)
			if len(waiters) == 1 {
				w = waiters[0]
			}
			return len(waiters) == 1
		})
		pid := int(waiting.Connections()[0].PID)
		if w.Process.PID != pid || w.Process.Application != "exports-b latchkey" || w.Process.Address != "127.0.0.1" || w.Poll == nil {
			t.Errorf("the waiter is %+v, want process %d", w, pid)
		}
		if text := inspect(t, db).String(); !strings.Contains(text, "host-b/2") {
			t.Errorf("no holder of the waiting Session in\n%s", text)
		}
	})
}

// SetName of one lock of a stack names all of them, but for those that had a name
// before Bind.
func TestNameOfAStack(t *testing.T) {
	t.Parallel()
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := withRegistry(t, driver, dsn)
		s := session(t, driver, dsn, sqllock.WithRegistry(""), sqllock.WithHeartbeat(20*time.Millisecond))
		user, tenant, total := sqllock.Namespace("user").Key("ada"), sqllock.Namespace("tenant").Key("acme"), sqllock.Namespace("total").Key("")
		locks := sqllock.Locks{mustLock(t, s, user), mustLock(t, s, tenant), mustLock(t, s, total)}
		locks[1].SetName("acme")
		ctx, cancel := locks.Bind(t.Context())
		defer cancel()
		innermost, _ := sqllock.FromContext(ctx)
		innermost.SetName("export of ada")
		for key, want := range map[sqllock.Key]string{user: "export of ada", tenant: "acme", total: "export of ada"} {
			lockertest.Eventually(t, "the name "+want, func() bool {
				r := registration(t, db, key)
				return r != nil && r.Name == want
			})
		}
	})
}

// The age of a finding is that of what it is about, not of the look that has found
// it.
func TestSinceOfFindings(t *testing.T) {
	t.Parallel()
	lock := registered(5, 50) // acquired a second before noon, with a heartbeat at noon and a lease of a second
	lock.Process.State, lock.Process.StateSince = "idle", noon
	held := held(1, 10)
	first, second := waits(1, 20, 2), waits(2, 10, 1)
	first.Since, second.Since = noon.Add(time.Second), noon.Add(2*time.Second)
	s := &lockwatch.Snapshot{At: noon.Add(time.Hour), Holders: holders{lock, held, {Key: sqllock.ID(20), Process: lockwatch.Process{PID: 2}}}, Waiters: waiters{first, second}}
	d := lockwatch.NewDiagnosis(lockwatch.WithLongHeld(time.Minute))
	d.Look(s)
	d.Look(s)
	since := map[lockwatch.FindingKind]time.Time{lockwatch.LateHeartbeat: noon, lockwatch.HeldLong: noon.Add(-time.Second), lockwatch.WaitCycle: noon.Add(2 * time.Second)}
	open := d.Open()
	if len(open) != 3 {
		t.Errorf("%d findings, want 3: %+v", len(open), open)
	}
	for _, f := range open {
		if !f.Since.Equal(since[f.Kind]) {
			t.Errorf("%s since %v, want %v", f.Kind, f.Since, since[f.Kind])
		}
	}
}

// The name of a lock is what its holder has called it. A waiter for the key is not
// shown under that name: it may be of another user.
func TestWaiterHasNotTheNameOfTheHolder(t *testing.T) {
	t.Parallel()
	h := registered(5, 50)
	h.Registration.Namespace, h.Registration.Name = "export", "report of ada"
	v := lockwatch.NewView(&lockwatch.Snapshot{At: noon, Holders: holders{h}, Waiters: waiters{waits(1, 50, 5)}})
	if row := v.Waiting(1)[0]; row.Label != "export 50" || row.Name != "" || row.Namespace != "export" {
		t.Errorf("the waiter has the label %q, the name %q and the namespace %q", row.Label, row.Name, row.Namespace)
	}
	if row := v.Locks(0, 1)[0]; row.Label != "report of ada" || row.Name != "report of ada" {
		t.Errorf("the lock has the label %q and the name %q", row.Label, row.Name)
	}
}
