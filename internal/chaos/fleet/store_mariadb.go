package fleet

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql" // registers "mysql"

	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A mariadbBackend is a MariaDB server.
type mariadbBackend struct {
	f        *Fleet
	database string
}

// start implements backend.
func (b *mariadbBackend) start(ctx context.Context) (db *sql.DB, err error) {
	if err := mysql.SetLogger(new(mysql.NopLogger)); err != nil { // it would log each fault
		return nil, err
	}
	// What was committed survives the server's death, though not the machine's.
	if b.f.MariaDB, err = mariadbtest.Start(); err != nil {
		return nil, err
	}
	if b.database, err = b.f.MariaDB.CreateDatabase(); err != nil {
		return nil, err
	}
	if db, err = sql.Open("mysql", b.f.MariaDB.DSN(b.database)+"?timeout=2s"); err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(0) // the server is restarted now and then
	statements := worker.Tables(sqllock.MySQL)
	if b.f.Services > 0 {
		statements = append(statements, worker.ServicesSchema(sqllock.MySQL)...)
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return db, fmt.Errorf("schema: %w", err)
		}
	}
	return db, nil
}

// admit implements backend.
func (b *mariadbBackend) admit(ctx context.Context, m *Member) error {
	if _, err := b.f.DB.ExecContext(ctx, "CREATE USER "+m.Role); err != nil {
		return err
	}
	_, err := b.f.DB.ExecContext(ctx, "GRANT ALL ON "+b.database+".* TO "+m.Role)
	return err
}

// address implements backend.
func (b *mariadbBackend) address() string {
	return "127.0.0.1:" + strconv.Itoa(b.f.MariaDB.Port())
}

// configure implements backend.
func (b *mariadbBackend) configure(m *Member, c *worker.Config) {
	c.Driver, c.Database = "mysql", sqllock.MySQL
	c.DSN = m.Role + "@tcp(" + m.Proxy.Addr() + ")/" + b.database
	c.Direct = b.f.MariaDB.DSN(b.database)
}

// version implements backend.
func (b *mariadbBackend) version(ctx context.Context) (version string, err error) {
	if err := b.f.DB.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return "", err
	}
	version, _, _ = strings.Cut(version, "-")
	return "MariaDB " + version, nil
}

// locks implements backend.
func (b *mariadbBackend) locks(ctx context.Context) (n int, keys []int64, err error) {
	keys, err = numbers(ctx, b.f.DB, `SELECT CAST(CONV(RIGHT(table_schema, 16), 16, -10) AS SIGNED) FROM information_schema.metadata_lock_info
		WHERE lock_type = 'User lock' AND table_schema LIKE 'latchkey.%.0.%'`)
	return len(keys), keys, err
}

// locksOf implements backend.
func (b *mariadbBackend) locksOf(ctx context.Context, pid int) (int, error) {
	return b.f.number(ctx, "SELECT count(*) FROM information_schema.metadata_lock_info WHERE lock_type = 'User lock' AND thread_id = ?", pid)
}

// remains implements backend.
func (b *mariadbBackend) remains(ctx context.Context) (int, error) {
	return b.f.number(ctx, "SELECT count(*) FROM information_schema.processlist WHERE user LIKE 'member%'")
}

// close implements backend.
func (b *mariadbBackend) close() error {
	if b.f.MariaDB == nil {
		return nil
	}
	return b.f.MariaDB.Close()
}
