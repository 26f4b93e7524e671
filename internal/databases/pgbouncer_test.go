package databases

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A bouncerStep is what an administrator does to a PgBouncer at work.
type bouncerStep struct {
	name    string
	disturb func(t *testing.T, b *console, held *sqllock.Lock)
	lost    bool // the lock that is held meanwhile is lost
}

// A console is a PgBouncer with a connection to its admin console. PgBouncer
// takes a command like SUSPEND back when that connection ends.
type console struct {
	*pgtest.Bouncer
	conn *sql.Conn
}

// connect opens the connection to the admin console.
func (b *console) connect(t *testing.T) {
	t.Helper()
	b.conn = mustConn(t, open(t, "postgres", b.DSN("pgbouncer")))
}

const (
	bouncerLease = 2500 * time.Millisecond // of locks that are lost
	inSession    = "session"
	inTx         = "transaction"
)

// admin sends commands to the admin console.
func admin(commands ...string) func(*testing.T, *console, *sqllock.Lock) {
	return func(t *testing.T, b *console, _ *sqllock.Lock) {
		for _, command := range commands {
			if _, err := b.conn.ExecContext(t.Context(), command); err != nil {
				t.Errorf("%s: %v", command, err)
			}
		}
	}
}

// adminUntilLost sends a command, waits until the holder is told, and has
// PgBouncer go on.
func adminUntilLost(command, resume string) func(*testing.T, *console, *sqllock.Lock) {
	return func(t *testing.T, b *console, held *sqllock.Lock) {
		admin(command)(t, b, held)
		lockertest.Eventually(t, "the holder is told", func() bool { return held.Err() != nil })
		admin(resume)(t, b, held)
	}
}

// killDatabase sends KILL, waits until the holder is told if it is to lose its
// lock, and sends RESUME. Now and then KILL ends PgBouncer, with "bad client
// state" (1.18) or SIGSEGV (https://github.com/pgbouncer/pgbouncer/issues/1401).
// Then it is started again, as a service manager does.
func killDatabase(lost bool) func(*testing.T, *console, *sqllock.Lock) {
	return func(t *testing.T, b *console, held *sqllock.Lock) {
		_, err := b.conn.ExecContext(t.Context(), "KILL postgres")
		if lost {
			lockertest.Eventually(t, "the holder is told", func() bool { return held.Err() != nil })
		}
		if err == nil {
			_, err = b.conn.ExecContext(t.Context(), "RESUME postgres")
		}
		if err == nil {
			return
		}
		lockertest.Eventually(t, "PgBouncer has ended: "+err.Error(), func() bool { return b.StartAgain() == nil })
		t.Logf("KILL has ended PgBouncer: %v", err)
		b.connect(t)
	}
}

// pauseInSession sends PAUSE, which waits in session mode until all clients
// have left, and takes it back. A second PAUSE fails once the first is in effect.
func pauseInSession(t *testing.T, b *console, held *sqllock.Lock) {
	ctx, cancel := context.WithCancel(t.Context())
	paused := make(chan error, 2)
	for range cap(paused) {
		go func() { paused <- b.Admin(ctx, "PAUSE") }()
	}
	if err := <-paused; err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("one of two PAUSE: %v, want that it is paused already", err)
	}
	admin("RESUME")(t, b, held)
	cancel()
	<-paused
}

// killBouncer kills PgBouncer, waits until the holder is told, and starts it again.
func killBouncer(t *testing.T, b *console, held *sqllock.Lock) {
	must(t, b.Kill())
	lockertest.Eventually(t, "the holder is told", func() bool { return held.Err() != nil })
	must(t, b.StartAgain())
}

// timePasses waits for longer than the timeouts in bouncerSteps.
func timePasses(*testing.T, *console, *sqllock.Lock) { time.Sleep(6 * time.Second) }

// reload gives PgBouncer other settings.
func reload(mode string, size int, more ...string) func(*testing.T, *console, *sqllock.Lock) {
	return func(t *testing.T, b *console, _ *sqllock.Lock) {
		if err := b.Reload(t.Context(), mode, size, more...); err != nil {
			t.Error(err)
		}
	}
}

const poolSize = 10

// bouncerSteps are the steps for each mode, in order.
var bouncerSteps = map[string][]bouncerStep{
	inSession: {
		{"RELOAD", admin("RELOAD"), false},
		{"RELOAD, smaller pool", reload(inSession, 1), false},
		{"RELOAD, larger pool", reload(inSession, poolSize), false},
		{"PAUSE", pauseInSession, false},
		{"RECONNECT", admin("RECONNECT"), false},
		{"SUSPEND, short", admin("SUSPEND", "RESUME"), false},
		{"SUSPEND, long", adminUntilLost("SUSPEND", "RESUME"), true},
		{"KILL", killDatabase(true), true},
		{"timeouts, longer than the heartbeat", reload(inSession, poolSize, "client_idle_timeout = 5", "server_idle_timeout = 1", "server_lifetime = 1", "query_wait_timeout = 1", "server_reset_query_always = 1"), false},
		{"time passes", timePasses, false},
		{"killed with -9", killBouncer, true}, // the last one: it ends the connection to the admin console
	},
	inTx: {
		{"RELOAD", admin("RELOAD"), false},
		{"RELOAD, smaller pool", reload(inTx, 1), false},
		{"RELOAD, larger pool", reload(inTx, poolSize), false},
		{"PAUSE, short", admin("PAUSE", "RESUME"), false},
		{"RECONNECT", admin("RECONNECT"), false},
		{"SUSPEND, short", admin("SUSPEND", "RESUME"), false},
		{"KILL, short", killDatabase(false), false},
		{"PAUSE, long", adminUntilLost("PAUSE", "RESUME"), true},
		{"SUSPEND, long", adminUntilLost("SUSPEND", "RESUME"), true},
		{"KILL, long", killDatabase(true), true},
		{"timeouts", reload(inTx, poolSize, "client_idle_timeout = 1", "server_idle_timeout = 1", "server_lifetime = 1", "query_wait_timeout = 1", "server_reset_query_always = 1"), false},
		{"time passes", timePasses, false},
	},
}

// An administrator disturbs a PgBouncer while two Sessions have callers and a
// third one holds a lock. No key is held twice, holders are told, and callers
// are served afterwards.
func TestLongPgBouncerAtWork(t *testing.T) {
	t.Parallel()
	for mode, steps := range bouncerSteps {
		for _, driver := range pgtest.Drivers() {
			t.Run(mode+"/"+driver, func(t *testing.T) {
				t.Parallel()
				bouncer, o := bouncerOrders(t, mode, driver)
				tr := startTraffic(t, mode == inSession, process(t, o), process(t, o))
				lasting, brief := process(t, o, steady...), process(t, o)
				for _, step := range steps {
					holder := lasting
					if step.lost {
						holder = brief
					}
					atStep(t, bouncer, holder, step)
					if step.lost {
						tr.flows("after " + step.name)
					}
				}
				tr.flows("at the end")
				tr.end()
				t.Logf("%d losses", tr.losses())
			})
		}
	}
}

// bouncerOrders starts a PgBouncer and returns how to connect through it.
func bouncerOrders(t *testing.T, mode, driver string) (*console, lockertest.Orders) {
	t.Helper()
	bouncer, err := pgtest.New(t).PgBouncer(mode, poolSize)
	must(t, err)
	o := lockertest.Orders{Driver: driver, DSN: bouncer.DSN(""), LeaseTable: mode == inTx, Lease: bouncerLease}
	if o.LeaseTable {
		o.DSN = unprepared(driver, o.DSN)
	}
	c := &console{Bouncer: bouncer}
	c.connect(t)
	return c, o
}

// atStep takes a step while holder has a lock.
func atStep(t *testing.T, b *console, holder *sqllock.Session, step bouncerStep) {
	t.Helper()
	held := awaitLock(t, holder, sqllock.ID(1))
	step.disturb(t, b, held)
	err := held.Unlock()
	if step.lost && !errors.Is(err, sqllock.ErrLost) || !step.lost && err != nil {
		t.Errorf("%s: Unlock of the lock held meanwhile: %v; want it lost: %v", step.name, err, step.lost)
	}
}
