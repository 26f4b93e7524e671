package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A database is where the instances keep their locks, seen from outside.
type database struct {
	dsn     string
	db      *sql.DB
	cluster *pgtest.Cluster // nil if DATABASE_URL names the database
}

// openDatabase takes the database that DATABASE_URL names, or starts a throwaway
// one, which ends with this process.
func openDatabase() (_ *database, err error) {
	d := &database{dsn: os.Getenv("DATABASE_URL")}
	if d.dsn == "" {
		if d.cluster, err = pgtest.Start(); err != nil {
			return nil, err
		}
		d.dsn = d.cluster.DSN("")
	}
	if d.db, err = sql.Open("pgx", d.dsn); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *database) close() error {
	var err error
	if d.db != nil {
		err = d.db.Close()
	}
	if d.cluster != nil {
		err = errors.Join(err, d.cluster.Close())
	}
	return err
}

// watchConnections asks the server again and again how many connections latchkey
// has. stop ends that, and returns the most that were seen.
func (d *database) watchConnections() (stop func() (most int, err error)) {
	var (
		watching sync.WaitGroup
		stopped  = make(chan struct{})
		most     int
		failed   error
	)
	watching.Go(func() {
		for failed == nil {
			var n int
			n, failed = d.connections()
			most = max(most, n)
			select {
			case <-stopped:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	return func() (int, error) {
		close(stopped)
		watching.Wait()
		return most, failed
	}
}

// connections counts the connections of latchkey: a Session adds its name to the
// application's.
func (d *database) connections() (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = d.db.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE '%latchkey'`).Scan(&n)
	return n, err
}
