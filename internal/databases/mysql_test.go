package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// keyLocks are the locks of keys in the connection's database.
const keyLocks = ` FROM information_schema.metadata_lock_info WHERE lock_type = 'User lock'
	AND table_schema REGEXP CONCAT('^latchkey[.]', LEFT(SHA2(DATABASE(), 256), 8), '[.][01][.]')`

const namedLocks = "SELECT count(*)" + keyLocks

func mariadb(t *testing.T) lockertest.Orders {
	return lockertest.Orders{Driver: "mysql", DSN: mariadbtest.Database(t)}
}

// holder is the connection that has keys' locks.
func holder(t *testing.T, db *sql.DB) int {
	t.Helper()
	return number(t, db, "SELECT max(thread_id)"+keyLocks)
}

func isGone(err error) bool { return isOfKind(err, dialect.Gone) }

func isOfKind(err error, kind dialect.Kind) bool {
	var failure *dialect.Failure
	return errors.As(err, &failure) && failure.Kind == kind
}

// The parts of a statement are computed in order: a key that is not held and is released
// and tried at once is reported as not held, and is held then.
func TestMySQLOrder(t *testing.T) {
	t.Parallel()
	s := connect(t, mariadb(t))
	keys := append(big(1, 2, 3), pairs(1)...)
	got := exchange(t, s, dialect.Batch{Release: keys, Try: keys, Any: [][]dialect.Key{{keys[0], big(9)[0]}, big(9), big(9, 10), {}}})
	if !reflect.DeepEqual(got.NotHeld, keys) || len(got.Busy) != 0 || !reflect.DeepEqual(got.Won, []int{1, -1, 1, -1}) {
		t.Errorf("not held %v, busy %v, won %v", got.NotHeld, got.Busy, got.Won)
	}
	if got, want := held(t, s), append(big(1, 2, 3, 9, 10), pairs(1)...); !reflect.DeepEqual(got, want) {
		t.Errorf("held: %v, want %v", got, want)
	}
}

func TestMySQLLargeGroup(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	a, b := connect(t, o), connect(t, o)
	var ids []int64
	for i := range int64(4000) {
		ids = append(ids, i)
	}
	exchange(t, a, dialect.Batch{Try: big(ids[:3999]...)})
	if got := exchange(t, b, dialect.Batch{Any: [][]dialect.Key{big(ids...), big(ids...)}}); !reflect.DeepEqual(got.Won, []int{3999, -1}) {
		t.Errorf("won %v, want the last key of 4000, which is the only free one, once", got.Won)
	}
	if keys := held(t, b); !reflect.DeepEqual(keys, big(3999)) {
		t.Errorf("held: %v", keys)
	}
}

// Databases of one server are apart, as PostgreSQL's are.
func TestMySQLDatabasesAreApart(t *testing.T) {
	t.Parallel()
	one, other := connect(t, mariadb(t)), connect(t, mariadb(t))
	for _, s := range []dialect.Session{one, other} {
		if got := exchange(t, s, dialect.Batch{Try: big(1)}); len(got.Busy) != 0 {
			t.Errorf("busy: %v", got.Busy)
		}
	}
}

// A connection that is killed, at rest or at work, takes its locks with it.
func TestMySQLKilled(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	db := open(t, o.Driver, o.DSN)
	s, rival := connect(t, o), connect(t, o)
	exchange(t, s, dialect.Batch{Try: big(1)})
	execute(t, db, fmt.Sprintf("KILL CONNECTION %d", holder(t, db)))
	lockertest.Eventually(t, "the lock of a killed connection is free", func() bool {
		return len(exchange(t, rival, dialect.Batch{Try: big(1)}).Busy) == 0
	})
	if err := s.Exchange(&dialect.Batch{}); !isGone(err) {
		t.Errorf("Exchange on a killed connection: %v, want a Failure of Kind Gone", err)
	}
	if _, err := s.Held(); !isGone(err) {
		t.Errorf("Held on a killed connection: %v, want a Failure of Kind Gone", err)
	}
}

// A Session whose statements are killed (KILL QUERY), which MariaDB does to those that change
// tables, keeps its locks and loses no caller.
func TestMySQLSessionOutlivesKilledStatements(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	db := open(t, o.Driver, o.DSN)
	execute(t, db, "CREATE TABLE work (who INT)")
	s := process(t, o)
	lock := mustLock(t, s, sqllock.ID(-1))
	if err := fencedWork(t, db, lock, -1); err != nil {
		t.Fatal(err)
	}
	id := holder(t, db)
	done := make(chan struct{})
	var (
		wg      sync.WaitGroup
		refused atomic.Int64
	)
	for i := range 16 {
		wg.Go(func() {
			for range 20 {
				other, err := s.TryLock(context.Background(), sqllock.ID(int64(i)))
				if err == nil {
					if fenced := fencedWork(t, db, other, i); fenced != nil {
						refused.Add(1)
						if !strings.Contains(fenced.Error(), "interrupted") {
							t.Errorf("Fence: %v", fenced)
						}
					}
					err = other.Unlock()
				}
				if err != nil && !errors.Is(err, sqllock.ErrUnavailable) {
					t.Errorf("TryLock, Unlock: %v", err)
					return
				}
			}
		})
	}
	var killer sync.WaitGroup
	killer.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				execute(t, db, fmt.Sprintf("KILL QUERY %d", id))
			}
		}
	})
	wg.Wait()
	close(done)
	killer.Wait()
	if err := lock.Err(); err != nil {
		t.Errorf("the lock that was held: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	lockertest.Eventually(t, "no lock is left", func() bool { return number(t, db, namedLocks) == 0 })
	t.Logf("%d tokens were not drawn, %d losses", refused.Load(), s.Stats().Losses)
}

// The watch on the socket notices a connection that is killed, long before a heartbeat.
func TestMySQLLossIsToldAtOnce(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	db := open(t, o.Driver, o.DSN)
	s := process(t, o, sqllock.WithLease(10*time.Minute))
	for range 3 {
		lock := mustLock(t, s, sqllock.ID(1))
		began := time.Now()
		execute(t, db, fmt.Sprintf("KILL CONNECTION %d", holder(t, db)))
		<-lock.Context().Done()
		t.Logf("told after %v", time.Since(began).Round(10*time.Microsecond))
		if cause := context.Cause(lock.Context()); cause != sqllock.ErrLost {
			t.Errorf("cause: %v, want ErrLost", cause)
		}
		lockertest.Eventually(t, "the session serves again", func() bool {
			lock, err := s.TryLock(t.Context(), sqllock.ID(1))
			return err == nil && lock.Unlock() == nil
		})
	}
}

// A server that stops, crashes or freezes takes the locks with it; the Session serves again
// when it is back, and tokens go on rising.
func TestMySQLServerRestarts(t *testing.T) {
	t.Parallel()
	server := mariadbtest.New(t)
	o := lockertest.Orders{Driver: "mysql", DSN: server.Database(t)}
	s := process(t, o, sqllock.WithLease(2*time.Second))
	var last dialect.Token
	for _, fault := range []struct {
		name string
		do   func() error
	}{
		{"restart", func() error { return errors.Join(server.Stop(), server.StartAgain()) }},
		{"kill -9", func() error { return errors.Join(server.Kill(), server.StartAgain()) }},
		{"freeze", func() error {
			err := server.Freeze()
			time.Sleep(3 * time.Second) // longer than the lease
			return errors.Join(err, server.Thaw())
		}},
	} {
		lock := mustLock(t, s, sqllock.ID(1))
		if token := drawn(t, o); token.System != last.System && last != (dialect.Token{}) || !last.Before(token) {
			t.Errorf("before %s: token %v after %v", fault.name, token, last)
		} else {
			last = token
		}
		if err := fault.do(); err != nil {
			t.Fatalf("%s: %v", fault.name, err)
		}
		<-lock.Context().Done()
		if err := lock.Err(); err != sqllock.ErrLost {
			t.Errorf("%s: Err: %v, want ErrLost", fault.name, err)
		}
		_ = lock.Unlock()
		lockertest.Eventually(t, "the session serves again", func() bool {
			lock, err := s.TryLock(t.Context(), sqllock.ID(1))
			return err == nil && lock.Unlock() == nil
		})
	}
}

// drawn is a token of a session for itself.
func drawn(t *testing.T, o lockertest.Orders) dialect.Token {
	t.Helper()
	s := connect(t, o)
	defer s.Destroy()
	token, err := s.Token()
	if err != nil {
		t.Fatalf("Token: %v", err)
	}
	return token
}

// A stale holder, whose connection somebody has killed behind its back, is refused by
// the fence. The tables make themselves.
func TestMySQLFence(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	db := open(t, o.Driver, o.DSN)
	execute(t, db, "CREATE TABLE work (who INT)")
	stale := mustLock(t, process(t, o), sqllock.ID(1))
	if err := fencedWork(t, db, stale, 1); err != nil {
		t.Fatalf("Fence: %v", err)
	}
	key := dialect.Key{ID: 1}
	at := func(token dialect.Token) (passed bool) {
		t.Helper()
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		passed, err = dialect.Fence(t.Context(), tx, key, token)
		if err != nil {
			t.Fatalf("Fence: %v", err)
		}
		if passed {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		if err != nil {
			t.Fatal(err)
		}
		return passed
	}
	later := drawn(t, o)
	earlier, lastEpoch, otherSystem := later, later, later
	earlier.Number--
	lastEpoch.Epoch--
	lastEpoch.Number++
	otherSystem.System++
	otherSystem.Number = 1
	for _, step := range []struct {
		name  string
		token dialect.Token
		want  bool
	}{
		{"later", later, true},
		{"the same", later, true},
		{"earlier", earlier, false},
		{"a later number of an earlier epoch", lastEpoch, false},
	} {
		if got := at(step.token); got != step.want {
			t.Errorf("%s: passed %t", step.name, got)
		}
	}
	if err := fencedWork(t, db, stale, 2); err != sqllock.ErrFenced {
		t.Errorf("Fence of the stale holder: %v, want ErrFenced", err)
	}
	if number(t, db, "SELECT count(*) FROM work WHERE who = 2") > 0 {
		t.Error("the stale holder's work is in the database")
	}
	if got := at(otherSystem); !got {
		t.Error("a token of another system is refused")
	}
	execute(t, db, "DROP TABLE latchkey_fence")
	if err := fencedWork(t, db, stale, 3); err == nil || !strings.Contains(err.Error(), "Schema(MySQL)") {
		t.Errorf("Fence without its table: %v", err)
	}
}

// Schema's statements make what a session makes, and may be run again.
func TestMySQLSchema(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	db := open(t, o.Driver, o.DSN+"?multiStatements=true")
	for range 2 {
		execute(t, db, sqllock.Schema(sqllock.MySQL))
	}
	if n := number(t, db, "SELECT count(*) FROM latchkey_tokens"); n != 1 {
		t.Errorf("%d rows of tokens, want 1", n)
	}
	execute(t, db, "CREATE TABLE work (who INT)")
	if err := fencedWork(t, db, mustLock(t, process(t, o), sqllock.ID(1)), 1); err != nil {
		t.Errorf("Fence: %v", err)
	}
}

// A user who may not create tables holds locks all the same, and is told what is missing
// for the rest; its locks outlive the refusal.
func TestMySQLWithoutRightToCreate(t *testing.T) {
	t.Parallel()
	server := mariadbtest.New(t)
	o := lockertest.Orders{Driver: "mysql", DSN: server.Database(t)}
	db := open(t, o.Driver, o.DSN+"?multiStatements=true")
	name := o.DSN[strings.LastIndexByte(o.DSN, '/')+1:]
	execute(t, db, "CREATE USER clerk@127.0.0.1; GRANT SELECT, INSERT, UPDATE, DELETE ON "+name+".* TO clerk@127.0.0.1")
	s := process(t, lockertest.Orders{Driver: "mysql", DSN: server.DSNOf("clerk", name)})
	lock := mustLock(t, s, sqllock.ID(1))
	keyed := sqllock.Namespace("payouts").Keyed([]byte("a secret of 32 bytes, or nearly.")).Key("7")
	if _, err := s.TryLock(t.Context(), keyed); err == nil || !strings.Contains(err.Error(), "Schema(MySQL)") {
		t.Errorf("TryLock of a key with a secret: %v", err)
	}
	if err := fencedWork(t, db, lock, 1); err == nil || !strings.Contains(err.Error(), "Schema(MySQL)") {
		t.Errorf("Fence: %v", err)
	}
	if err := lock.Err(); err != nil {
		t.Errorf("the lock: %v", err)
	}
	execute(t, db, "CREATE TABLE work (who INT);"+sqllock.Schema(sqllock.MySQL))
	lockertest.Eventually(t, "the key with a secret is to be had", func() bool {
		other, err := s.TryLock(t.Context(), keyed)
		return err == nil && other.Unlock() == nil
	})
	if err := fencedWork(t, db, lock, 1); err != nil {
		t.Errorf("Fence: %v", err)
	}
}

// What a dead session claimed is nobody's, and its rows go.
func TestMySQLDeadClaims(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	db := open(t, o.Driver, o.DSN)
	dead, s := connect(t, o), connect(t, o)
	mine, theirs := dialect.ClaimOf("payouts", 1), dialect.ClaimOf("payouts", 2)
	if _, err := dead.Claim([]dialect.Claim{theirs}, nil); err != nil {
		t.Fatal(err)
	}
	dead.Destroy()
	lockertest.Eventually(t, "a dead session's claim is not in the way", func() bool {
		disputed, err := s.Claim([]dialect.Claim{mine}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return !disputed[0]
	})
	if n := number(t, db, "SELECT count(*) FROM latchkey_claims"); n != 1 {
		t.Errorf("%d rows of claims, want 1", n)
	}
	if _, err := s.Claim(nil, []dialect.Claim{mine}); err != nil {
		t.Fatal(err)
	}
	if n := number(t, db, "SELECT count(*) FROM latchkey_claims"); n != 0 {
		t.Errorf("%d rows of claims, want none", n)
	}
}

func TestMySQLRefused(t *testing.T) {
	t.Parallel()
	server := mariadbtest.New(t)
	dsn := server.Database(t)
	one := open(t, "mysql", dsn)
	one.SetMaxOpenConns(1)
	for _, tt := range []struct {
		name string
		db   *sql.DB
		want error
		says string
	}{
		{"a pool of one", one, sqllock.ErrNotExclusive, "SetMaxOpenConns"},
		{"no database", open(t, "mysql", strings.TrimSuffix(server.DSN("x"), "x")), sqllock.ErrNotExclusive, "name one in the connection string"},
		{"no such database", open(t, "mysql", server.DSN("nowhere")), sqllock.ErrUnavailable, "no such database"},
		{"no such user", open(t, "mysql", server.DSNOf("nobody", "mysql")), sqllock.ErrUnavailable, "the user or the password"},
	} {
		s, err := sqllock.Open(t.Context(), tt.db)
		if err == nil {
			_ = s.Close()
		}
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %v that says %q", tt.name, err, tt.want, tt.says)
		}
		if err != nil && (strings.Contains(err.Error(), "nowhere") || strings.Contains(err.Error(), "127.0.0.1")) {
			t.Errorf("%s: the error names a host or a database: %v", tt.name, err)
		}
	}
	if _, err := sqllock.Open(t.Context(), open(t, "mysql", dsn), sqllock.WithLeaseTable()); !errors.Is(err, sqllock.ErrNotExclusive) {
		t.Errorf("WithLeaseTable: %v", err)
	}
}

// A server that is made a replica is refused, and a Session that is on it lets go of its locks:
// those who connect to the new primary take them.
func TestMySQLReadOnly(t *testing.T) {
	t.Parallel()
	server := mariadbtest.New(t)
	o := lockertest.Orders{Driver: "mysql", DSN: server.Database(t)}
	s := process(t, o, sqllock.WithLease(2*time.Second))
	lock := mustLock(t, s, sqllock.ID(1))
	if err := server.Execute("SET GLOBAL read_only = 1"); err != nil {
		t.Fatal(err)
	}
	<-lock.Context().Done()
	if _, err := sqllock.Open(t.Context(), pool(t, o)); !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("Open on a read-only server: %v", err)
	}
	if _, err := s.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrNotExclusive) && !errors.Is(err, sqllock.ErrUnavailable) {
		t.Errorf("TryLock on a read-only server: %v", err)
	}
	if err := server.Execute("SET GLOBAL read_only = 0"); err != nil {
		t.Fatal(err)
	}
	lockertest.Eventually(t, "the session serves again", func() bool {
		lock, err := s.TryLock(t.Context(), sqllock.ID(1))
		return err == nil && lock.Unlock() == nil
	})
}

// A connection comes from the pool with what its last user has left on it.
func TestMySQLForgottenLocks(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	s := connect(t, o)
	exchange(t, s, dialect.Batch{Try: big(1)})
	db := open(t, o.Driver, o.DSN)
	var name string
	if err := db.QueryRow("SELECT table_schema" + keyLocks).Scan(&name); err != nil {
		t.Fatal(err)
	}
	exchange(t, s, dialect.Batch{Release: big(1)})
	db.SetMaxOpenConns(2)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "DO GET_LOCK('"+name+"', 0)"); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close() // back to the pool
	careful, err := dialect.MySQL{}.Open(t.Context(), db, settings)
	if err != nil {
		t.Fatal(err)
	}
	defer careful.Destroy()
	if got := exchange(t, s, dialect.Batch{Try: big(1)}); len(got.Busy) > 0 {
		t.Error("a lock that was left on a pooled connection is held")
	}
}

// Over TLS, and through a wrapper's protocol options, the socket is found.
func TestMySQLSocket(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	for _, options := range []string{"", "?compress=true", "?readTimeout=5s&interpolateParams=true&parseTime=true"} {
		s, err := dialect.MySQL{}.Open(t.Context(), open(t, o.Driver, o.DSN+options), settings)
		if err != nil {
			t.Fatalf("%s: %v", options, err)
		}
		if s.Socket() == nil {
			t.Errorf("%s: the driver's socket was not found", options)
		}
		s.Abort()
		if err := s.Exchange(&dialect.Batch{}); err == nil || s.Socket() != nil && !isGone(err) {
			t.Errorf("%s: Exchange after Abort: %v, want a Failure of Kind Gone", options, err)
		}
		s.Destroy()
	}
}
