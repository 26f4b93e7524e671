package lockwatch_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A registeringHolder is a process of its own with a Session that writes heartbeats, and holds sqllock.ID(1): this test binary,
// with these orders in its environment.
type registeringHolder struct {
	Driver, DSN string
	Lease       time.Duration
}

const registeringHolderEnv = "LATCHKEY_TEST_REGISTERING_HOLDER"

// runRegisteringHolder does not return in a registeringHolder's process.
func runRegisteringHolder() {
	text := os.Getenv(registeringHolderEnv)
	if text == "" {
		return
	}
	go func() { // die with the parent
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	var o registeringHolder
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.hold()
	}
	fmt.Fprintln(os.Stderr, "holder:", err)
	os.Exit(1)
}

func (o registeringHolder) hold() error {
	db, err := sql.Open(o.Driver, o.DSN)
	if err != nil {
		return err
	}
	s, err := sqllock.Open(context.Background(), db, sqllock.WithRegistry(""), sqllock.WithLease(o.Lease))
	if err != nil {
		return err
	}
	if _, err := s.TryLock(context.Background(), sqllock.ID(1)); err != nil {
		return err
	}
	fmt.Println("holding")
	select {}
}

// start starts o and returns when it holds.
func (o registeringHolder) start(t *testing.T) *os.Process {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0]) //nolint:gosec,noctx // this test binary
	cmd.Env, cmd.Stderr = append(os.Environ(), registeringHolderEnv+"="+string(text)), os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("the holder said %q: %v", line, err)
	}
	return cmd.Process
}

// A process that is frozen is told late before the server ends its session, a lease after its last word.
func TestWatchTellsOfAFrozenProcess(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		const lease = 4 * time.Second
		db := withRegistry(t, driver, dsn)
		frozen := registeringHolder{driver, dsn, lease}.start(t)
		lockertest.Eventually(t, "it is registered", func() bool { return registration(t, db, sqllock.ID(1)) != nil })
		w := startWatch(t, db)
		w.anotherLook(db, sqllock.ID(2))
		if n := w.count(late(sqllock.ID(1), false)); n != 0 {
			t.Error("late, while it runs")
		}
		if err := pgtest.FreezeProcess(frozen.Pid); err != nil {
			t.Fatal(err)
		}
		w.await(1, "it is told late", late(sqllock.ID(1), false))
		w.await(1, "the server ends it", late(sqllock.ID(1), true))
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, f := range w.findings {
			if f.Holder == nil || f.Holder.Key != sqllock.ID(1) || f.Over {
				continue
			}
			if age := f.Since.Sub(f.Holder.Registration.Heartbeat); f.Kind == lockwatch.LateHeartbeat && (age < lease/2 || !f.Since.Before(f.Holder.Registration.Expires)) {
				t.Errorf("told when its heartbeat was %v old, of a lease of %v", age, lease)
			}
		}
	})
}

// While somebody keeps the registry from being written, healthy sessions are not late, and nobody is asked
// whether to end them.
func TestWatchSparesWhoCannotRegister(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := withRegistry(t, driver, dsn)
		s := session(t, driver, dsn, sqllock.WithRegistry(""), sqllock.WithHeartbeat(20*time.Millisecond), sqllock.WithLease(2*time.Second))
		lock := mustLock(t, s, sqllock.ID(1))
		lockertest.Eventually(t, "it is registered", func() bool { return registration(t, db, sqllock.ID(1)) != nil })
		tx, _ := client(t, db)
		if _, err := tx.Exec("LOCK TABLE latchkey_heartbeats IN SHARE MODE"); err != nil { // as CREATE INDEX does
			t.Fatal(err)
		}
		w := startWatch(t, db, lockwatch.WithTerminate(func(f lockwatch.Finding) bool {
			t.Errorf("asked whether to end a healthy session: %+v", f)
			return false
		}))
		told := func(over bool) func(lockwatch.Finding) bool { return ofKind(lockwatch.RegistryNotWritten, over) }
		w.await(1, "that the registry is not written is told", told(false))
		lockertest.Eventually(t, "its heartbeat expires", func() bool {
			r := registration(t, db, sqllock.ID(1))
			return inspect(t, db).At.After(r.Expires)
		})
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		w.await(1, "that it is written again is told", told(true))
		if err := lock.Err(); err != nil || w.count(late(sqllock.ID(1), false)) != 0 {
			t.Errorf("the healthy lock: %v; told late %d times", err, w.count(late(sqllock.ID(1), false)))
		}
	})
}

// A session that was ended, and is slow to go, is not ended again.
func TestWatchTerminatesOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := withRegistry(t, "pgx", dsn)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_lock(1)"); err != nil {
		t.Fatal(err)
	}
	pid := beat{session: 1, key: sqllock.ID(1), age: time.Hour}.write(t, db)
	if err := pgtest.FreezeProcess(pid); err != nil {
		t.Skip("the server's processes are not this one's to stop: ", err)
	}
	resume := func() { _ = pgtest.ThawProcess(pid) }
	defer resume()
	w := startWatch(t, db, lockwatch.WithTerminate(func(f lockwatch.Finding) bool { return f.Holder.Key == sqllock.ID(1) }))
	w.await(1, "that it was ended is told", terminated)
	w.anotherLook(db, sqllock.ID(2))
	w.anotherLook(db, sqllock.ID(3))
	w.await(1, "it is ended once", terminated)
	resume()
	w.await(1, "it is gone", late(sqllock.ID(1), true))
}
