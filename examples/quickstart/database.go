package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A database is where the instances keep their locks, seen from outside.
type database struct {
	url  string // for the instances
	kind kind
	db   *sql.DB
	dir  string // of the throwaway file; "" if DATABASE_URL names the database
}

// openDatabase takes the database that DATABASE_URL names, or makes a throwaway
// one: a SQLite file, which goes with close.
func openDatabase() (_ *database, err error) {
	d := &database{url: os.Getenv("DATABASE_URL")}
	if d.url == "" {
		if d.dir, err = os.MkdirTemp("", "latchkey-quickstart-"); err != nil {
			return nil, err
		}
		d.url = "sqlite:" + filepath.Join(d.dir, "locks.db")
	}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *database) open() error {
	driver, dsn, err := driverFor(d.url)
	if err != nil {
		return err
	}
	d.kind = kinds[driver]
	d.db, err = sql.Open(driver, dsn)
	return err
}

func (d *database) close() error {
	var err error
	if d.db != nil {
		err = d.db.Close()
	}
	if d.dir != "" {
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	return err
}

// watchSessions asks the database again and again how many sessions latchkey has.
// stop ends that, and returns the most that were seen.
func (d *database) watchSessions() (stop func() (most int, err error)) {
	var (
		watching sync.WaitGroup
		stopped  = make(chan struct{})
		most     int
		failed   error
	)
	watching.Go(func() {
		for failed == nil {
			var n int
			n, failed = d.sessions()
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

// sessions counts the sessions of latchkey.
func (d *database) sessions() (n int, err error) {
	err = d.ask(d.kind.sessions, &n)
	return n, err
}

// name is what to call the database.
func (d *database) name() (name string, err error) {
	err = d.ask(d.kind.name, &name)
	return name, err
}

// ask scans the one value that query yields.
func (d *database) ask(query string, answer any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return d.db.QueryRowContext(ctx, query).Scan(answer)
}
