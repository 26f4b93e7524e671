package fleet

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // registers "sqlite"

	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A sqliteBackend is two files of SQLite, next to the histories: one for locks,
// and one for the data behind the fence.
type sqliteBackend struct{ f *Fleet }

func (b *sqliteBackend) data() string { return "file:" + filepath.Join(b.f.Dir, "data.db") + busy }

// busy has a writer wait for another one.
const busy = "?_pragma=busy_timeout(1500)"

// start implements backend.
func (b *sqliteBackend) start(ctx context.Context) (db *sql.DB, err error) {
	b.f.LockFile = filepath.Join(b.f.Dir, "locks.db")
	if b.f.lockDB, err = sql.Open("sqlite", "file:"+b.f.LockFile+busy); err != nil {
		return nil, err
	}
	for _, statement := range sqllock.Schema(sqllock.SQLite) { // the observer reads it before a process has
		if _, err := b.f.lockDB.ExecContext(ctx, statement); err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
	}
	if db, err = sql.Open("sqlite", b.data()); err != nil {
		return nil, err
	}
	statements := append([]string{"PRAGMA journal_mode = WAL"}, worker.Tables(sqllock.SQLite)...)
	if b.f.Services > 0 {
		statements = append(statements, worker.ServicesSchema(sqllock.SQLite)...)
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return db, fmt.Errorf("schema: %w", err)
		}
	}
	return db, nil
}

// admit implements backend.
func (*sqliteBackend) admit(context.Context, *Member) error { return nil }

// address implements backend.
func (*sqliteBackend) address() string { return "" }

// configure implements backend.
func (b *sqliteBackend) configure(_ *Member, c *worker.Config) {
	c.Driver, c.Database = "sqlite", sqllock.SQLite
	c.DSN, c.Direct = "file:"+b.f.LockFile, b.data()+"&_txlock=immediate"
}

// version implements backend.
func (b *sqliteBackend) version(ctx context.Context) (version string, err error) {
	err = b.f.DB.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
	return "SQLite " + version, err
}

// sqliteNow is the machine's clock as the lease table has it.
const sqliteNow = `CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)`

// locks implements backend.
func (b *sqliteBackend) locks(ctx context.Context) (n int, keys []int64, err error) {
	keys, err = numbers(ctx, b.f.lockDB, `SELECT key_id FROM latchkey_locks l JOIN latchkey_sessions s ON s.id = l.session WHERE s.expires > `+sqliteNow)
	return len(keys), keys, err
}

// locksOf implements backend.
func (b *sqliteBackend) locksOf(ctx context.Context, pid int) (n int, err error) {
	err = b.f.lockDB.QueryRowContext(ctx, "SELECT count(*) FROM latchkey_sessions WHERE expires > "+sqliteNow+" AND holder LIKE ?", holder(pid)).Scan(&n)
	return n, err
}

// remains implements backend. It counts sessions.
func (b *sqliteBackend) remains(ctx context.Context) (n int, err error) {
	err = b.f.lockDB.QueryRowContext(ctx, `SELECT count(*) FROM latchkey_sessions WHERE expires > `+sqliteNow).Scan(&n)
	return n, err
}

// close implements backend. The files stay with the histories.
func (b *sqliteBackend) close() error {
	if b.f.lockDB == nil {
		return nil
	}
	return b.f.lockDB.Close()
}

// LockWriter opens a connection pool for a writer of the file of the locks,
// as a careless program is one.
func (f *Fleet) LockWriter() (*sql.DB, error) {
	if _, err := os.Stat(f.LockFile); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	return sql.Open("sqlite", "file:"+f.LockFile+busy)
}
