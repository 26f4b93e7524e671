package integrations_test

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	migratesqlite "github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/database/stub"
	migratetesting "github.com/golang-migrate/migrate/v4/database/testing"
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/latchkey-go/latchkey/examples/integrations/migratelock"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// migrateUp is what an instance does before it serves. driver is one of golang-migrate's.
func migrateUp(locks sqllock.Locker, migrations source.Driver, driver database.Driver) error {
	driver = migratelock.New(driver, locks, sqllock.Namespace("migrations").Key("app"), 10*time.Second)
	m, err := migrate.NewWithInstance("iofs", migrations, "app", driver)
	if err != nil {
		return err
	}
	err = m.Up() // database.ErrLocked after ten seconds
	if errors.Is(err, migrate.ErrNoChange) {
		return nil // another instance has migrated
	}
	return err
}

func Example_migrate() {
	driver := &stub.Stub{CurrentVersion: database.NilVersion}
	locks := sqllock.NewMemory() // a service has a *sqllock.Session
	for range 2 {
		migrations := must(iofs.New(fstest.MapFS{"1_users.up.sql": {Data: []byte("CREATE TABLE users")}}, "."))
		fmt.Println(migrateUp(locks, migrations, driver))
	}
	fmt.Println(driver.MigrationSequence)
	// Output:
	// <nil>
	// <nil>
	// [CREATE TABLE users]
}

var migrationKey = sqllock.Namespace("migrations").Key("app")

// newMigrate returns a Migrate with two migrations.
func newMigrate(driver database.Driver) *migrate.Migrate {
	migrations := must(iofs.New(fstest.MapFS{
		"1_ran.up.sql": {Data: []byte("CREATE TABLE IF NOT EXISTS ran (n int); INSERT INTO ran VALUES (1);")},
		"2_ran.up.sql": {Data: []byte("INSERT INTO ran VALUES (2);")},
	}, "."))
	m := must(migrate.NewWithInstance("iofs", migrations, "test", driver))
	m.LockTimeout = 2 * onlyHang
	return m
}

// sqliteDriver is golang-migrate's driver in another process.
func sqliteDriver(t *testing.T, path string) database.Driver {
	t.Helper()
	return must(migratesqlite.WithInstance(openFile(t, path), &migratesqlite.Config{}))
}

// migrateDriver runs golang-migrate's suite for drivers. Then, of two processes
// both get the driver's own lock, and one gets that of latchkey.
func migrateDriver(t *testing.T, fleet fleet) {
	path := filepath.Join(t.TempDir(), "data.db")
	own, other := sqliteDriver(t, path), sqliteDriver(t, path)
	one := migratelock.New(own, fleet(), migrationKey, onlyHang)
	two := migratelock.New(other, fleet(), migrationKey, time.Millisecond)
	migratetesting.Test(t, one, []byte("CREATE TABLE users (name text)"))
	if err := errors.Join(own.Lock(), other.Lock()); err != nil {
		t.Errorf("the driver's own lock excludes: the page is wrong: %v", err)
	}
	if err := one.Lock(); err != nil {
		t.Fatal(err)
	}
	if err := two.Lock(); !errors.Is(err, database.ErrLocked) {
		t.Errorf("a lock that is held elsewhere: %v", err)
	}
	if err := one.Unlock(); err != nil {
		t.Error(err)
	}
	if err := one.Unlock(); !errors.Is(err, database.ErrNotLocked) {
		t.Errorf("Unlock again: %v", err)
	}
}

// migrateMigrate runs golang-migrate's suite for a Migrate with a driver.
func migrateMigrate(t *testing.T, fleet fleet) {
	driver := sqliteDriver(t, filepath.Join(t.TempDir(), "data.db"))
	migratetesting.TestMigrate(t, newMigrate(migratelock.New(driver, fleet(), migrationKey, onlyHang)))
}

// losing is a driver that loses all locks while it runs a migration.
type losing struct {
	database.Driver
	locks *sqllock.Memory
}

func (d losing) Run(migration io.Reader) error {
	d.locks.Lose()
	return d.Driver.Run(migration)
}

// After a loss the migration under way ends, no other begins, and the version
// stays dirty. So another process runs none, either.
func TestMigrateLoss(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	inner := &stub.Stub{CurrentVersion: database.NilVersion}
	m := newMigrate(migratelock.New(losing{inner, locks}, locks, migrationKey, onlyHang))
	err := m.Up()
	if again := m.Up(); !errors.Is(err, sqllock.ErrLost) || again != migrate.ErrLocked {
		t.Errorf("Up: %v; want ErrLost. Up again: %v; want ErrLocked", err, again)
	}
	if len(inner.MigrationSequence) != 1 || inner.CurrentVersion != 1 || !inner.IsDirty {
		t.Errorf("ran %q; version %d, dirty: %v", inner.MigrationSequence, inner.CurrentVersion, inner.IsDirty)
	}
	err = newMigrate(migratelock.New(inner, locks, migrationKey, onlyHang)).Up()
	if dirty := (migrate.ErrDirty{}); !errors.As(err, &dirty) {
		t.Errorf("another process: %v; want ErrDirty", err)
	}
}

// While one process builds an index concurrently, another one waits for the lock.
// Waiting for the lock of golang-migrate's own driver is a statement, and
// PostgreSQL waits for that before it completes the index: a deadlock. Waiting for
// a lock of latchkey is no statement.
func TestLongMigrateConcurrentIndex(t *testing.T) {
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprintf("own lock: %v", own), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			db := dbtest.Open(t, "pgx", dsn)
			dbtest.Execute(t, db, "CREATE TABLE cities (name text)")
			var drivers [2]database.Driver
			for i := range drivers {
				drivers[i] = must(migratepgx.WithInstance(dbtest.Open(t, "pgx", dsn), &migratepgx.Config{}))
				t.Cleanup(func() { _ = drivers[i].Close() })
			}
			waits := func() bool { return dbtest.WaitForLocks(t, db) == 1 }
			if !own {
				locks := dbtest.Session(t, "pgx", dsn)
				drivers[0] = migratelock.New(drivers[0], dbtest.Session(t, "pgx", dsn), migrationKey, onlyHang)
				drivers[1] = migratelock.New(drivers[1], locks, migrationKey, onlyHang)
				waits = func() bool { return locks.Stats().Waiting == 1 }
			}
			if err := drivers[0].Lock(); err != nil {
				t.Fatal(err)
			}
			waited := make(chan error, 1)
			go func() {
				err := drivers[1].Lock()
				if err == nil {
					err = drivers[1].Unlock()
				}
				waited <- err
			}()
			lockertest.Eventually(t, "the other process waits", waits)
			built := drivers[0].Run(strings.NewReader("CREATE INDEX CONCURRENTLY cities_name ON cities (name)"))
			err := errors.Join(built, drivers[0].Unlock(), <-waited)
			if deadlock := strings.Contains(fmt.Sprint(err), "deadlock detected"); deadlock != own || !own && err != nil {
				t.Errorf("deadlock: %v; %v", deadlock, err)
			}
		})
	}
}
