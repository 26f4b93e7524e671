// Package mysql implements the engine's sessions with GET_LOCK of MySQL and
// MariaDB.
//
// GET_LOCK knows no shared locks. Its locks belong to the whole server, so their
// names have a hash of the database's name in them. Tokens are counted in a table.
package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A Dialect locks with GET_LOCK, on one connection of a pool, in MySQL and
// MariaDB.
type Dialect struct {
	// Named: the user has said which dialect it is, and so answers for a server
	// that another server feeds.
	Named bool
}

// Traits says that many locks are better spread over several sessions. For each
// new lock MariaDB looks through all locks of its session. That takes twice as
// long with 2,000 locks as with none.
func (Dialect) Traits() dialect.Traits {
	return dialect.Traits{Name: "mysql", Lease: dialect.DefaultLease, HeldPerSession: dialect.HeldPerConnection, CloseTimeout: dialect.ConnectionCloseTimeout}
}

// Open takes two connections of db and proves on them that locks exclude. Then
// it gives one back and sets the other up as the session.
//
// It SETs nothing before the proof. Behind a proxy that would reach the session
// of another client.
func (d Dialect) Open(ctx context.Context, db *sql.DB, set dialect.Settings) (dialect.Session, error) {
	var (
		p      proof
		server server
	)
	conn, err := dbconn.Prove(ctx, db, set, "", func(pair dbconn.Pair) (err error) {
		p = proof{Pair: pair, mayBeFed: d.Named}
		server, err = p.run(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	s := &session{
		conn: conn.Conn, socket: conn.Socket, id: p.id, held: map[dialect.Key]struct{}{},
		pool: dbconn.Pool{DB: db, Find: set.Socket}, bound: sideTxBound(set),
		mariadb: server.mariadb, server: server.identity(), serverName: server.name(),
		names: newLockNames(server.database), limit: server.longest(),
	}
	s.name = s.names.ofSession(rand.Uint64()) //nolint:gosec // a name, not a secret
	if err = conn.SetUp(ctx, set.Proof, func(ctx context.Context) error { return s.setUp(ctx, set) }); err != nil {
		return nil, err
	}
	return s, nil
}

// setUp makes the connection a session of locks:
//
//   - It holds no lock but its own at the start.
//   - The server ends it when it has been silent for a lease, and for no other
//     reason.
//   - No statement on it takes longer than StatementTimeout.
//   - Settings that an earlier user made do not apply.
//
// A server that rejects a setting does not have what a session of locks needs.
func (s *session) setUp(ctx context.Context, set dialect.Settings) error {
	lease := wholeSeconds(set.Lease)
	wait := max(int64(set.StatementTimeout/time.Second), 1)
	limit := fmt.Sprintf("max_execution_time = %d", max(set.StatementTimeout.Milliseconds(), 1))
	if s.mariadb {
		limit = fmt.Sprintf("max_statement_time = %.3f, idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0,"+
			" idle_write_transaction_timeout = 0", max(set.StatementTimeout.Seconds(), 0.001))
	}
	_, err := s.conn.ExecContext(ctx, fmt.Sprintf("SET SESSION wait_timeout = %d, net_read_timeout = %d, net_write_timeout = %d,"+
		" lock_wait_timeout = %d, innodb_lock_wait_timeout = %d, %s, time_zone = '+00:00', autocommit = 1,"+
		" sql_mode = '', sql_select_limit = 18446744073709551615, sql_safe_updates = 0",
		lease, lease, lease, wait, wait, limit))
	if number, _, ok := errcode.MySQL(err); ok && slices.Contains(errcode.MySQLNoSetting, number) {
		return dialect.Refuse(fmt.Sprintf("a setting of the session was rejected (error %d), so the server may not free the locks of a dead process:"+
			" use a server of MySQL or MariaDB, not one that only speaks their protocol", number))
	}
	if err != nil {
		return err
	}
	// A pooled connection may hold locks that its last user forgot: taking one
	// of them would be re-entry, and succeed.
	got, err := s.ask(ctx, "CONCAT(@@session.wait_timeout, ' ', @@session.autocommit = 1, ' ', RELEASE_ALL_LOCKS() >= 0, ' ', GET_LOCK('"+s.name+"', 0))")
	if want := strconv.FormatInt(lease, 10) + " 1 1 1"; err == nil && got != want {
		err = dialect.Refuse("wait_timeout could not be set, or the connection's locks not be given back: the server would not free the locks of a dead process")
	}
	return err
}

// wholeSeconds returns d in seconds, rounded up.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
