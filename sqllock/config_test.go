package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// withPassword creates the role clerk, for which the server requires a
// password. It returns a connection string with that password.
func withPassword(t *testing.T, admin *sql.DB, dsn, password string) string {
	t.Helper()
	var file string
	if err := admin.QueryRow("SHOW hba_file").Scan(&file); err != nil {
		t.Fatal(err)
	}
	execute(t, admin, "COPY (VALUES ('host all clerk all scram-sha-256'), ('host all all all trust'), ('local all all trust')) TO '"+file+"'")
	execute(t, admin, "SELECT pg_reload_conf()")
	execute(t, admin, "CREATE ROLE clerk LOGIN PASSWORD 'right'")
	return asUser(dsn, "clerk:"+password)
}

// asUser returns dsn with another user. The user may be followed by a password.
func asUser(dsn, user string) string {
	scheme, rest, _ := strings.Cut(dsn, "://")
	_, rest, _ = strings.Cut(rest, "@")
	return scheme + "://" + user + "@" + rest
}

// misconfigured checks that err is ErrConfig and no error that a retry could
// solve.
func misconfigured(t *testing.T, what string, err error, says, dsn string) {
	t.Helper()
	if !errors.Is(err, sqllock.ErrConfig) || errors.Is(err, sqllock.ErrUnavailable) || errors.Is(err, sqllock.ErrNotExclusive) {
		t.Errorf("%s: %v, want ErrConfig alone", what, err)
		return
	}
	if !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want %q in it", what, err, says)
	}
	tellsNothing(t, err, dsn)
}

// A mistake that only a person can correct is ErrConfig, for Open, for a lazy
// Open and for PerTx.
func TestErrConfig(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		dsn := cluster.DSN("")
		admin := open(t, driver, dsn)
		wrong := withPassword(t, admin, dsn, "wrong")
		execute(t, admin, "CREATE ROLE outsider LOGIN")
		execute(t, admin, "CREATE ROLE retired NOLOGIN")
		execute(t, admin, "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC")
		execute(t, admin, "CREATE DATABASE narrow")
		// PostgreSQL 14 grants it.
		execute(t, open(t, driver, cluster.DSN("narrow")), "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
		mode := "" // in which a lease table is safe
		if driver == "pgx" {
			mode = "&default_query_exec_mode=exec"
		}
		for name, tt := range map[string]struct {
			dsn, says string
			opts      []sqllock.Option
			most      int // connections of the pool
		}{
			"wrong password":  {dsn: wrong, says: "28P01"},
			"may not log in":  {dsn: asUser(dsn, "retired"), says: "28000"},
			"no database":     {dsn: cluster.DSN("nowhere"), says: "3D000"},
			"no right":        {dsn: asUser(dsn, "outsider"), says: "42501"},
			"a pool of one":   {dsn: dsn, says: "allow two or more", most: 1},
			"no registry":     {dsn: dsn, says: "lockwatch.Schema", opts: []sqllock.Option{sqllock.WithRegistry("")}},
			"no lease tables": {dsn: asUser(cluster.DSN("narrow"), "outsider") + mode, says: "Schema(PostgreSQL)", opts: []sqllock.Option{sqllock.WithLeaseTable()}},
		} {
			for _, opts := range [][]sqllock.Option{tt.opts, append(tt.opts[:len(tt.opts):len(tt.opts)], sqllock.WithLazyOpen())} {
				db := open(t, driver, tt.dsn)
				db.SetMaxOpenConns(tt.most)
				s, err := sqllock.Open(t.Context(), db, opts...)
				if err == nil {
					_ = s.Close()
				}
				misconfigured(t, name, err, tt.says, tt.dsn)
			}
		}
		_, err := sqllock.PerTx(open(t, driver, wrong)).TryLock(t.Context(), sqllock.ID(1))
		misconfigured(t, "PerTx", err, "28P01", wrong)
	})
}

// What keeps a Session from connecting again is reported as ErrConfig. The
// Session goes on trying, and serves once a person has corrected it.
func TestConfigChangesLater(t *testing.T) {
	for name, tt := range map[string]struct {
		says        string
		spoil, mend func(admin, pool *sql.DB)
	}{
		"password": {
			"28P01",
			func(admin, _ *sql.DB) { execute(t, admin, "ALTER ROLE clerk PASSWORD 'changed'") },
			func(admin, _ *sql.DB) { execute(t, admin, "ALTER ROLE clerk PASSWORD 'right'") },
		},
		"pool": {
			"allow two or more",
			func(_, pool *sql.DB) { pool.SetMaxOpenConns(1) },
			func(_, pool *sql.DB) { pool.SetMaxOpenConns(2) },
		},
	} {
		eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
			admin := open(t, driver, cluster.DSN(""))
			dsn := withPassword(t, admin, cluster.DSN(""), "right")
			db := open(t, driver, dsn)
			db.SetMaxIdleConns(0)
			s := sessionOn(t, db)
			tt.spoil(admin, db)
			unlock(t, mustLock(t, s, sqllock.ID(1))) // on the connection that is open already
			execute(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'clerk'")
			var err error
			lockertest.Eventually(t, name+": the Session reports it", func() bool {
				var lock *sqllock.Lock
				lock, err = s.TryLock(t.Context(), sqllock.ID(1))
				_ = lock.Unlock()
				return err != nil && !errors.Is(err, sqllock.ErrUnavailable)
			})
			misconfigured(t, name, err, tt.says, dsn)
			if err := canceledLock(t, s); !errors.Is(err, sqllock.ErrConfig) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: Lock: %v, want ErrConfig and Canceled", name, err)
			}
			waiter := make(chan error, 1)
			go func() {
				lock, err := s.Lock(context.Background(), sqllock.ID(2))
				_ = lock.Unlock()
				waiter <- err
			}()
			tt.mend(admin, db)
			if err := <-waiter; err != nil {
				t.Errorf("%s: a call that waited until it was mended: %v", name, err)
			}
		})
	}
}
