package integrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	gooselocks "github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"

	"github.com/latchkey-go/latchkey/examples/integrations/gooselock"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// gooseUp is what an instance does before it serves.
func gooseUp(ctx context.Context, locks sqllock.Locker, db *sql.DB, migrations fs.FS) (applied int, err error) {
	locker, ctx := gooselock.New(ctx, locks, gooselock.Key)
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, migrations, goose.WithLocker(locker))
	if err != nil {
		return 0, err
	}
	results, err := provider.Up(ctx)
	if errors.Is(err, sqllock.ErrLost) {
		return 0, fmt.Errorf("another instance may migrate now: %w", err)
	}
	return len(results), err
}

func Example_goose() {
	db := must(sql.Open("sqlite", "file:example?mode=memory&cache=shared"))
	defer db.Close()
	migrations := fstest.MapFS{"1_users.sql": {Data: []byte("-- +goose Up\nCREATE TABLE users (name text);")}}
	locks := sqllock.NewMemory() // a service has a *sqllock.Session
	for range 2 {
		fmt.Println(gooseUp(context.Background(), locks, db, migrations))
	}
	// Output:
	// 1 <nil>
	// 0 <nil>
}

// gooseFiles are n migrations. Each writes its number down.
func gooseFiles(n int) fstest.MapFS {
	files := fstest.MapFS{"00001_ran.sql": {Data: []byte("-- +goose Up\nCREATE TABLE ran (n int);\n")}}
	for i := 2; i <= n; i++ {
		files[fmt.Sprintf("%05d_work.sql", i)] = &fstest.MapFile{Data: fmt.Appendf(nil, "-- +goose Up\nINSERT INTO ran VALUES (%d);\n", i)}
	}
	return files
}

func openFile(t *testing.T, path string) *sql.DB {
	return dbtest.Open(t, "sqlite", path+"?_pragma=busy_timeout(30000)&_txlock=immediate")
}

// gooseProviders runs goose's suite for lockers of Providers: five start at once,
// and one of them applies all migrations.
func gooseProviders(t *testing.T, fleet fleet) {
	path := filepath.Join(t.TempDir(), "data.db")
	locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
		locker, _ := gooselock.New(t.Context(), fleet(), gooselock.Key)
		return must(goose.NewProvider(goose.DialectSQLite3, openFile(t, path), gooseFiles(5), goose.WithLocker(locker)))
	})
}

// The same suite, with migrations on PostgreSQL. The log has the time, also that
// of goose's own locker.
func TestLongGooseProviders(t *testing.T) {
	options := map[string]func(t *testing.T, dsn string) goose.ProviderOption{ // each call is that of another process
		"Locker": func(t *testing.T, dsn string) goose.ProviderOption {
			locker, _ := gooselock.New(t.Context(), dbtest.Session(t, "pgx", dsn), gooselock.Key)
			return goose.WithLocker(locker)
		},
		"SessionLocker": func(*testing.T, string) goose.ProviderOption {
			return goose.WithSessionLocker(gooselock.NewSession(gooselock.Key))
		},
		"goose's own": func(*testing.T, string) goose.ProviderOption {
			return goose.WithSessionLocker(must(gooselocks.NewPostgresSessionLocker()))
		},
	}
	for name, option := range options {
		t.Run(name, func(t *testing.T) {
			dsn := pgtest.Database(t)
			var ready []*goose.Provider
			for range 5 {
				ready = append(ready, must(goose.NewProvider(goose.DialectPostgres, dbtest.Open(t, "pgx", dsn), gooseFiles(5), option(t, dsn))))
			}
			// Providers that make goose's table of versions at once wait for a second.
			must(ready[0].HasPending(t.Context()))
			began := time.Now()
			locktesting.TestProviderLocking(t, func(*testing.T) *goose.Provider {
				p := ready[0]
				ready = ready[1:]
				return p
			})
			t.Logf("after %v", time.Since(began).Round(time.Millisecond))
		})
	}
}

// goose's suite for lockers: of five, one gets the lock, and the others give up.
func TestLongGooseLockers(t *testing.T) {
	fleet := postgres(t)
	locktesting.TestConcurrentLocking(t, nil, func(t *testing.T) gooselocks.Locker {
		locker, _ := gooselock.New(t.Context(), fleet(), gooselock.Key)
		return locker
	}, 2500*time.Millisecond) // if longer, the suite may give up while the lock is held
}

// A migration whose lock is lost ends, is rolled back, and fails with ErrLost.
func TestGooseLoss(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	locker, ctx := gooselock.New(t.Context(), locks, gooselock.Key)
	lose := goose.NewGoMigration(2, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO ran VALUES (2)"); err != nil {
			return err
		}
		locks.Lose()
		<-ctx.Done()
		return ctx.Err()
	}}, nil)
	db := openFile(t, filepath.Join(t.TempDir(), "data.db"))
	p := must(goose.NewProvider(goose.DialectSQLite3, db, gooseFiles(1), goose.WithLocker(locker), goose.WithGoMigrations(lose)))
	if _, err := p.Up(ctx); !errors.Is(err, sqllock.ErrLost) || context.Cause(ctx) != sqllock.ErrLost {
		t.Errorf("Up: %v; the context ends with %v", err, context.Cause(ctx))
	}
	version, err := p.GetDBVersion(t.Context())
	if n := dbtest.Number(t, db, "SELECT count(*) FROM ran"); n != 0 || version != 1 || err != nil {
		t.Errorf("the migration has left %d rows, and version %d, %v", n, version, err)
	}
	if err := locker.Unlock(t.Context(), db); err == nil {
		t.Error("Unlock without Lock: no error")
	}
}

// The server ends a migration together with the lock on its connection. The next
// Provider applies it.
func TestLongGooseConnectionLost(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	other := dbtest.Open(t, "pgx", dsn)
	killed := false
	kill := goose.NewGoMigration(2, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO ran VALUES (2)"); err != nil || killed {
			return err
		}
		killed = true
		var pid int
		if err := tx.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			return err
		}
		_, err := other.ExecContext(ctx, "SELECT pg_terminate_backend($1, 30000)", pid)
		return err
	}}, nil)
	for rows, want := range []error{sqllock.ErrLost, nil} {
		p := must(goose.NewProvider(goose.DialectPostgres, dbtest.Open(t, "pgx", dsn), gooseFiles(1),
			goose.WithSessionLocker(gooselock.NewSession(gooselock.Key)), goose.WithGoMigrations(kill)))
		if _, err := p.Up(t.Context()); !errors.Is(err, want) {
			t.Errorf("Up: %v; want %v", err, want)
		}
		if n := dbtest.Number(t, other, "SELECT count(*) FROM ran"); n != rows {
			t.Errorf("%d rows; want %d", n, rows)
		}
	}
}

// Key is goose's own: the lockers of both exclude each other.
func TestLongGooseOwnLocker(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	own, locks := must(gooselocks.NewPostgresSessionLocker()), dbtest.Session(t, "pgx", dsn)
	conn := dbtest.Conn(t, dbtest.Open(t, "pgx", dsn))
	if err := own.SessionLock(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if _, err := locks.TryLock(t.Context(), gooselock.Key); !errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("while goose's own locker holds the lock: %v", err)
	}
	if err := own.SessionUnlock(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	session := gooselock.NewSession(gooselock.Key)
	if err := errors.Join(session.SessionLock(t.Context(), conn), session.SessionUnlock(t.Context(), conn)); err != nil {
		t.Error(err)
	}
	if err := session.SessionUnlock(t.Context(), conn); err == nil {
		t.Error("SessionUnlock again: no error")
	}
}
