package demo

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A database is the database of the instances, as the demonstration sees it.
type database struct {
	driver, dsn string // for sql.Open
	kind        kind
	db          *sql.DB
	dir         string // of the throwaway file; "" if DATABASE_URL names the database
}

// openDatabase opens the database that DATABASE_URL names. Without DATABASE_URL it
// makes a SQLite file, which close removes.
func openDatabase(namespace string) (_ *database, err error) {
	d := &database{}
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		if d.dir, err = os.MkdirTemp("", "latchkey-quickstart-"); err != nil {
			return nil, err
		}
		url = "sqlite:" + d.file()
	}
	if err := d.open(url, namespace); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// file returns the path of the throwaway file, or "" if DATABASE_URL names the
// database.
func (d *database) file() string {
	if d.dir == "" {
		return ""
	}
	return filepath.Join(d.dir, "locks.db")
}

func (d *database) open(url, namespace string) (err error) {
	if d.driver, d.dsn, err = driverFor(url); err != nil {
		return err
	}
	d.kind = kindOf(d.driver, namespace)
	d.db, err = sql.Open(d.driver, d.dsn)
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

// watchSessions counts the sessions of latchkey every 50 ms, until stop is called.
// stop returns the highest count.
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

// Sessions counts the sessions of latchkey in the database of a URL, for tests.
func Sessions(url, namespace string) (n int, err error) {
	d := &database{}
	if err := d.open(url, namespace); err != nil {
		return 0, err
	}
	n, err = d.sessions()
	return n, errors.Join(err, d.close())
}

// name returns what to call the database.
func (d *database) name() (name string, err error) {
	err = d.ask(d.kind.name, &name)
	return name, err
}

// ask scans the one value that query returns.
func (d *database) ask(query string, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return d.db.QueryRowContext(ctx, query).Scan(result)
}
