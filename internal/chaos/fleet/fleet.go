// Package fleet is the system under test: several processes of the kit at work
// on one PostgreSQL, each behind a network of its own.
package fleet

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/latchkey-go/latchkey/internal/chaos/proxy"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Settings is the size of a fleet.
type Settings struct {
	Processes int
	Callers   int // in each process
	Keys      int
	Mixed     int // callers in each process beside them, of readers, sets, limits and stacks
	Lease     time.Duration
	Dir       string // for histories
	Seed      uint64
	Services  int // callers in each process of each package around sqllock
}

// A Fleet is for one goroutine, except for reading a process's status.
type Fleet struct {
	Settings
	Cluster *pgtest.Cluster
	DB      *sql.DB // an observer's: a superuser, not behind a proxy
	Members []*Member

	server  *url.URL // DSN of the fleet's database
	standby *pgtest.Cluster
	rng     *rand.Rand
	started int // processes, ever
}

// A Member is a place for a process: when one ends, another takes its place.
type Member struct {
	Number  int
	Role    string // of the database, an ordinary one
	Driver  string
	Proxy   *proxy.Proxy
	Abrupt  bool // its proxy's
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
	// What was committed must survive the server's death, though not the machine's.
	f.Cluster, err = pgtest.Start(pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
	if err != nil {
		return f, err
	}
	if err := f.createDatabase(ctx); err != nil {
		return f, err
	}
	for i := range set.Processes {
		if err := f.join(ctx, i+1); err != nil {
			return f, err
		}
	}
	return f, f.Serving(ctx, 30*time.Second)
}

// createDatabase makes the fleet's database.
func (f *Fleet) createDatabase(ctx context.Context) error {
	dsn, err := f.Cluster.CreateDatabase(ctx)
	if err != nil {
		return err
	}
	if f.server, err = url.Parse(dsn); err != nil {
		return err
	}
	if f.DB, err = sql.Open("pgx", dsn); err != nil {
		return err
	}
	f.DB.SetMaxIdleConns(0) // the server is restarted now and then
	statements := append(sqllock.FenceSchema(sqllock.PostgreSQL), worker.Schema)
	for _, statement := range append(statements, worker.ServicesSchema(sqllock.PostgreSQL)...) {
		if _, err := f.DB.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("fleet: schema: %w", err)
		}
	}
	return nil
}

// join makes a place for a process, and starts it.
func (f *Fleet) join(ctx context.Context, number int) (err error) {
	drivers := pgtest.Drivers()
	m := &Member{
		Number: number,
		Role:   fmt.Sprintf("member_%d", number),
		Driver: drivers[number%len(drivers)],
		Abrupt: number%4 < 2, // of each driver one that is, and one that is not
	}
	if _, err := f.DB.ExecContext(ctx, "CREATE ROLE "+m.Role+" LOGIN"); err != nil {
		return fmt.Errorf("fleet: role: %w", err)
	}
	if m.Proxy, err = proxy.Start(f.server.Host, m.Abrupt); err != nil {
		return err
	}
	f.Members = append(f.Members, m)
	return f.Replace(m)
}

// Replace starts a process in m's place. That of before must have ended.
func (f *Fleet) Replace(m *Member) (err error) {
	f.started++
	m.Process, err = worker.Start(worker.Config{
		Process: f.started,
		Driver:  m.Driver,
		DSN:     f.dsn(m, m.Proxy.Addr()),
		Direct:  f.dsn(m, f.server.Host),
		History: filepath.Join(f.Dir, fmt.Sprintf("process-%d.jsonl", f.started)),
		Lease:   f.Lease,
		Callers: f.Callers,
		Keys:    f.Keys,
		Mixed:   f.Mixed,
		Seed:    f.rng.Uint64(),

		Services: f.Services,
	})
	return err
}

// dsn is m's, for the fleet's database at host.
func (f *Fleet) dsn(m *Member, host string) string {
	u := *f.server
	u.Host, u.User = host, url.User(m.Role)
	query := u.Query()
	query.Set("application_name", m.Role)
	u.RawQuery = query.Encode()
	return u.String()
}

// Server is the address of the fleet's PostgreSQL, host:port.
func (f *Fleet) Server() string { return f.server.Host }

// Kill kills m's process and starts another in its place.
func (f *Fleet) Kill(m *Member) error {
	if err := m.Process.Kill(); err != nil {
		return err
	}
	return f.Replace(m)
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
	u, err := url.Parse(standby.DSN(f.server.Path[1:]))
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
		m.Proxy.Close()
	}
	if f.DB != nil {
		err = errors.Join(err, f.DB.Close())
	}
	if f.Cluster != nil {
		err = errors.Join(err, f.Cluster.Close())
	}
	return err
}
