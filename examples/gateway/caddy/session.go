package caddy

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/latchkey-go/latchkey/sqllock"
)

// sessions has the Session of each database in use, by its URL. Handlers share it,
// and so do a configuration and the one that replaces it: a reload keeps all locks.
var sessions = caddy.NewUsagePool()

// A shared is a Session and its pool. It is closed when its last user gives it up.
type shared struct {
	db      *sql.DB
	session *sqllock.Session
}

// openTimeout bounds Open, so that a database that hangs does not keep Caddy from
// starting.
const openTimeout = 10 * time.Second

// share returns the Session of a database.
func share(ctx context.Context, dsn string) (*shared, error) {
	s, _, err := sessions.LoadOrNew(dsn, func() (caddy.Destructor, error) { return open(ctx, dsn) })
	if err != nil {
		return nil, err
	}
	return s.(*shared), nil
}

// open opens a Session. A database that is away is no error: requests get 503
// until it is back. One that cannot hold locks is an error.
func open(ctx context.Context, dsn string) (*shared, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("latchkey: database is not a URL such as postgres://user@host/database") // err has parts of it
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(5)
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	session, err := sqllock.Open(ctx, db, sqllock.WithLazyOpen())
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &shared{db, session}, nil
}

// Destruct closes the Session.
func (s *shared) Destruct() error { return errors.Join(s.session.Close(), s.db.Close()) }
