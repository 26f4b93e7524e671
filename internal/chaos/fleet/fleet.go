// Package fleet is the system under test: several processes of the kit at work
// on one server, each behind a network of its own, or on one file.
package fleet

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/proxy"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// Settings is the size of a fleet.
type Settings struct {
	Store     Store // empty: Postgres
	Processes int
	Callers   int // in each process
	Keys      int
	Mixed     int // callers in each process beside them, of readers, sets, limits and stacks
	Brisk     int // callers in each process beside them, which hold for a moment
	Lease     time.Duration
	Dir       string // for histories
	Seed      uint64
	Services  int // callers in each process of each package around sqllock
}

// A Fleet is for one goroutine, except for reading a process's status.
type Fleet struct {
	Settings
	DB      *sql.DB // an observer's, of the data behind the fence: a superuser, not behind a proxy
	Members []*Member

	Cluster  *pgtest.Cluster     // nil if there is no PostgreSQL
	Pooler   *pgtest.Bouncer     // of PooledLeases
	MariaDB  *mariadbtest.Server // of MariaDB
	LockFile string              // of SQLite

	backend backend
	lockDB  *sql.DB // an observer's, of LockFile
	standby *pgtest.Cluster
	rng     *rand.Rand
	started int // processes, ever
}

// A Member is a place for a process: when one ends, another takes its place.
type Member struct {
	Number  int
	Role    string // of the database, an ordinary one
	Driver  string
	Proxy   *proxy.Proxy // nil if there is no network
	Abrupt  bool         // its proxy's
	Process *worker.Process
}

// Start starts a fleet and waits until every process serves.
func Start(ctx context.Context, set Settings) (f *Fleet, err error) {
	f = &Fleet{Settings: set, rng: rand.New(rand.NewPCG(set.Seed, 1))}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := os.MkdirAll(set.Dir, 0o700); err != nil {
		return f, fmt.Errorf("fleet: %w", err)
	}
	f.Store = cmp.Or(f.Store, Postgres)
	if err := f.Store.Known(); err != nil {
		return f, err
	}
	f.backend = newBackend(f)
	if f.DB, err = f.backend.start(ctx); err != nil {
		return f, fmt.Errorf("fleet: %w", err)
	}
	for i := range set.Processes {
		if err := f.join(ctx, i+1); err != nil {
			return f, err
		}
	}
	return f, f.Serving(ctx, 30*time.Second)
}

// join makes a place for a process, and starts it.
func (f *Fleet) join(ctx context.Context, number int) (err error) {
	m := &Member{
		Number: number,
		Role:   fmt.Sprintf("member_%d", number),
		Abrupt: number%4 < 2, // of each driver one that is, and one that is not
	}
	if err := f.backend.admit(ctx, m); err != nil {
		return fmt.Errorf("fleet: role: %w", err)
	}
	if server := f.backend.address(); server != "" {
		if m.Proxy, err = f.proxy(server, m.Abrupt); err != nil {
			return err
		}
	}
	f.Members = append(f.Members, m)
	return f.Replace(m)
}

// proxy starts a proxy that understands the protocol of f's server.
func (f *Fleet) proxy(server string, abrupt bool) (*proxy.Proxy, error) {
	if f.Store == MariaDB {
		return proxy.StartFor(proxy.MySQL, server, abrupt)
	}
	return proxy.Start(server, abrupt)
}

// Replace starts a process in m's place. That of before must have ended.
func (f *Fleet) Replace(m *Member) (err error) {
	f.started++
	c := worker.Config{
		Process: f.started,
		History: filepath.Join(f.Dir, fmt.Sprintf("process-%d.jsonl", f.started)),
		Lease:   f.Lease,
		Callers: f.Callers,
		Keys:    f.Keys,
		Mixed:   f.Mixed,
		Brisk:   f.Brisk,
		Seed:    f.rng.Uint64(),

		Services: f.Services,
	}
	f.backend.configure(m, &c)
	m.Driver = c.Driver
	m.Process, err = worker.Start(c)
	return err
}

// Version names the software that keeps the locks, with its version.
func (f *Fleet) Version(ctx context.Context) (string, error) { return f.backend.version(ctx) }

// Server is the address that the processes connect to, host:port.
func (f *Fleet) Server() string { return f.backend.address() }

// Kill kills m's process and starts another in its place.
func (f *Fleet) Kill(m *Member) error {
	if err := m.Process.Kill(); err != nil {
		return err
	}
	return f.Replace(m)
}

// ReplacePooler starts another PgBouncer, after the one of before was killed.
func (f *Fleet) ReplacePooler() error {
	if err := f.Pooler.Close(); err != nil {
		return err
	}
	return f.backend.(*postgresBackend).pool()
}

// Standby is a hot standby of the fleet's server, made at the first call.
func (f *Fleet) Standby() (*pgtest.Cluster, error) {
	if f.standby == nil {
		standby, err := f.Cluster.Standby()
		if err != nil {
			return nil, err
		}
		f.standby = standby
	}
	return f.standby, nil
}

// StandbyDSN is the DSN of the fleet's database on the standby.
func (f *Fleet) StandbyDSN(standby *pgtest.Cluster) (dsn, host string, err error) {
	u, err := url.Parse(standby.DSN(f.backend.(*postgresBackend).server.Path[1:]))
	if err != nil {
		return "", "", err
	}
	return u.String(), u.Host, nil
}

// Close ends every process, proxy and server of the fleet, and leaves only
// histories.
func (f *Fleet) Close() error {
	var err error
	for _, m := range f.Members {
		if m.Process != nil {
			err = errors.Join(err, m.Process.Kill())
		}
		if m.Proxy != nil {
			m.Proxy.Close()
		}
	}
	if f.DB != nil {
		err = errors.Join(err, f.DB.Close())
	}
	if f.backend != nil {
		err = errors.Join(err, f.backend.close())
	}
	return err
}
