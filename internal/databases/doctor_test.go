package databases

import (
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

func doctor(t *testing.T, db *sql.DB, opts ...lockdoctor.Option) *lockdoctor.Report {
	t.Helper()
	r, err := lockdoctor.Check(t.Context(), db, opts...)
	must(t, err)
	return r
}

// The doctor has nothing to say of a healthy system of any kind, before a
// Session was ever opened and while one holds locks.
func TestDoctorHealthy(t *testing.T) {
	healthy := func(t *testing.T, db *sql.DB, opts ...lockdoctor.Option) {
		t.Helper()
		if r := doctor(t, db, opts...); r.Worst() != lockdoctor.OK {
			t.Errorf("%v", r)
		}
	}
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		if o.Driver == "postgres" {
			o.DSN += "&connect_timeout=5"
		}
		db := pool(t, o)
		var opts []lockdoctor.Option
		if o.LeaseTable {
			opts = append(opts, lockdoctor.WithLeaseTable())
		}
		healthy(t, db, opts...)
		s := process(t, o)
		for _, schema := range []func(sqllock.Dialect) []string{sqllock.Schema, sqllock.FenceSchema, watermark.Schema, idempotency.Schema, lockwatch.Schema} {
			if s.Dialect() != sqllock.PostgreSQL { // whose throwaway servers do not wait for the disk
				create(t, db, schema(s.Dialect()))
			}
		}
		mustLock(t, s, sqllock.ID(1))
		keyed := sqllock.Namespace("export").Keyed([]byte("a secret of sixteen"))
		mustLock(t, s, keyed.Key("user"))
		opts = append(opts, lockdoctor.WithSession(s), lockdoctor.WithKeyedNamespace(keyed))
		healthy(t, db, opts...)
		if r := doctor(t, db, opts...); r.Dialect != s.Dialect() {
			t.Errorf("dialect %q, want %q", r.Dialect, s.Dialect())
		}
	})
}

// The doctor compares the key secrets of the processes that it has examined. A
// process counts while its Session lives, and holds one lock for that.
func TestDoctorSecrets(t *testing.T) {
	ours, theirs := sqllock.Namespace("export").Keyed([]byte("ours")), sqllock.Namespace("export").Keyed([]byte("theirs"))
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		db := pool(t, o)
		var opts []lockdoctor.Option
		if o.LeaseTable {
			opts = append(opts, lockdoctor.WithLeaseTable())
		}
		secrets := func(more ...lockdoctor.Option) lockdoctor.Result {
			t.Helper()
			c, _ := doctor(t, db, slices.Concat(opts, more)...).Find("secrets")
			return c
		}
		expect := func(want lockdoctor.State, more ...lockdoctor.Option) {
			t.Helper()
			if c := secrets(more...); c.State != want || strings.Contains(c.Fix, "the same secret") != (want == lockdoctor.Error) {
				t.Errorf("%+v, want %q", c, want)
			}
		}
		first, second, third := process(t, o), process(t, o), process(t, o)
		expect(lockdoctor.Skipped, lockdoctor.WithSession(first))
		expect(lockdoctor.Skipped, lockdoctor.WithKeyedNamespace(ours))
		for range 3 {
			expect(lockdoctor.OK, lockdoctor.WithSession(first), lockdoctor.WithKeyedNamespace(ours), lockdoctor.WithKeyedNamespace(sqllock.Namespace("mail").Keyed([]byte("theirs"))))
		}
		expect(lockdoctor.OK, lockdoctor.WithSession(second), lockdoctor.WithKeyedNamespace(ours))
		if n := len(first.Connections()[0].Held); n != 2 {
			t.Errorf("the Session holds %d locks for two namespaces", n)
		}
		must(t, first.Close()) // the second has a note of its own
		for _, n := range []sqllock.KeyedNamespace{theirs, ours, theirs} {
			s := third
			if n == ours {
				s = second
			}
			expect(lockdoctor.Error, lockdoctor.WithSession(s), lockdoctor.WithKeyedNamespace(n))
		}
		must(t, second.Close())
		lockertest.Eventually(t, "a Session that has ended does not count", func() bool {
			return secrets(lockdoctor.WithSession(third), lockdoctor.WithKeyedNamespace(theirs)).State == lockdoctor.OK
		})
		var notes int
		must(t, db.QueryRow("SELECT count(*) FROM latchkey_secret_checks").Scan(&notes))
		if notes != 2 { // of the third Session, and of mail, which no Check has looked at since
			t.Errorf("%d notes are left", notes)
		}
	})
}

// Misconfigurations of MariaDB and SQLite.
func TestDoctorPlanted(t *testing.T) {
	t.Parallel()
	on := func(o lockertest.Orders, opts ...lockdoctor.Option) func(*testing.T) (*sql.DB, []lockdoctor.Option) {
		return func(t *testing.T) (*sql.DB, []lockdoctor.Option) { return open(t, o.Driver, o.DSN), opts }
	}
	// changed plants by statements on a database with all tables.
	changed := func(orders func(*testing.T) lockertest.Orders, d sqllock.Dialect, statements ...string) func(*testing.T) (*sql.DB, []lockdoctor.Option) {
		return func(t *testing.T) (*sql.DB, []lockdoctor.Option) {
			o := orders(t)
			db := open(t, o.Driver, o.DSN)
			create(t, db, sqllock.Schema(d), sqllock.FenceSchema(d), watermark.Schema(d), statements)
			return db, nil
		}
	}
	for _, tt := range []struct {
		name, check string
		state       lockdoctor.State
		fix         string
		plant       func(*testing.T) (*sql.DB, []lockdoctor.Option)
	}{
		{"MariaDB: a pool of one", "pool", lockdoctor.Error, "SetMaxOpenConns(5)", func(t *testing.T) (*sql.DB, []lockdoctor.Option) {
			db := open(t, "mysql", mariadbtest.Database(t))
			db.SetMaxOpenConns(1)
			return db, nil
		}},
		{"MariaDB: a short wait_timeout", "timeouts", lockdoctor.Warning, "SET GLOBAL wait_timeout to more than", func(t *testing.T) (*sql.DB, []lockdoctor.Option) {
			return open(t, "mysql", mariadbtest.Database(t)+"?wait_timeout=5"), nil
		}},
		{"MariaDB: short statements", "timeouts", lockdoctor.Warning, "SET GLOBAL max_statement_time", func(t *testing.T) (*sql.DB, []lockdoctor.Option) {
			return open(t, "mysql", mariadbtest.Database(t)+"?max_statement_time=0.5"), nil
		}},
		{"MariaDB: a fence without transactions", "tables", lockdoctor.Error, "ENGINE = InnoDB", changed(mariadb, sqllock.MySQL, "ALTER TABLE latchkey_fence ENGINE = Aria")},
		{"MariaDB: no column", "tables", lockdoctor.Error, "FenceSchema", changed(mariadb, sqllock.MySQL, "ALTER TABLE latchkey_fence DROP lsn")},
		{"MariaDB: a newer table", "tables", lockdoctor.Error, "that has made it", changed(mariadb, sqllock.MySQL, "ALTER TABLE latchkey_fence ADD COLUMN later INT NOT NULL")},
		{"MariaDB: more instances than connections", "connections", lockdoctor.Warning, "Raise max_connections", func(t *testing.T) (*sql.DB, []lockdoctor.Option) {
			return on(mariadb(t), lockdoctor.WithFleet(100, 1))(t)
		}},
		{"SQLite: in memory", "file", lockdoctor.Error, "NewMemory", on(lockertest.Orders{Driver: "sqlite", DSN: ":memory:"})},
		{"SQLite: read only", "file", lockdoctor.Error, "query_only", func(t *testing.T) (*sql.DB, []lockdoctor.Option) {
			return open(t, "sqlite", file(t)+"&_pragma=query_only(1)"), nil
		}},
		{"SQLite: no busy_timeout", "timeouts", lockdoctor.Warning, "busy_timeout", func(t *testing.T) (*sql.DB, []lockdoctor.Option) {
			return open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")), nil
		}},
		{"SQLite: a journal that is not write-ahead", "journal", lockdoctor.Warning, "journal_mode = WAL", changed(sqlite, sqllock.SQLite, "PRAGMA journal_mode = DELETE")},
		{"SQLite: an older table", "tables", lockdoctor.Error, "sqllock.Schema", changed(sqlite, sqllock.SQLite, "ALTER TABLE latchkey_sessions DROP COLUMN holder")},
		{"SQLite: a newer table", "tables", lockdoctor.Error, "that has made it",
			changed(sqlite, sqllock.SQLite, "DROP TABLE latchkey_watermarks", "CREATE TABLE latchkey_watermarks (key_space INTEGER, key_id INTEGER, mark INTEGER, marked_at TEXT, later INTEGER NOT NULL, PRIMARY KEY (key_space, key_id))")},
		{"SQLite: no file", "connection", lockdoctor.Error, "", func(t *testing.T) (*sql.DB, []lockdoctor.Option) {
			return open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "missing", "app.db")), nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db, opts := tt.plant(t)
			r := doctor(t, db, opts...)
			if c, _ := r.Find(tt.check); c.State != tt.state || c.Fix == "" || !strings.Contains(c.Fix, tt.fix) {
				t.Errorf("%s is %q with the fix %q, want %q with %q in:\n%v", tt.check, c.State, c.Fix, tt.state, tt.fix, r)
			}
		})
	}
}

// Misconfigurations of servers and users of MariaDB.
func TestDoctorPlantedServers(t *testing.T) {
	t.Parallel()
	server := mariadbtest.New(t, "--max-allowed-packet=65536")
	dsn := server.Database(t)
	db := open(t, "mysql", dsn)
	create(t, db, sqllock.FenceSchema(sqllock.MySQL))
	find := func(db *sql.DB, check string, state lockdoctor.State, fix string, opts ...lockdoctor.Option) {
		t.Helper()
		r := doctor(t, db, opts...)
		if c, _ := r.Find(check); c.State != state || !strings.Contains(c.Fix, fix) {
			t.Errorf("%s is %q with the fix %q, want %q with %q in:\n%v", check, c.State, c.Fix, state, fix, r)
		}
	}
	find(db, "packet", lockdoctor.Warning, "max_allowed_packet")

	database := dsn[strings.LastIndex(strings.Split(dsn, "?")[0], "/")+1:]
	database, _, _ = strings.Cut(database, "?")
	for _, statement := range []string{
		"CREATE USER clerk IDENTIFIED BY '' WITH MAX_USER_CONNECTIONS 1",
		fmt.Sprintf("GRANT SELECT ON %s.* TO clerk", database),
	} {
		execute(t, db, statement)
	}
	clerk := open(t, "mysql", server.DSNOf("clerk", database))
	find(clerk, "connections", lockdoctor.Error, "MAX_USER_CONNECTIONS")
	execute(t, db, "ALTER USER clerk WITH MAX_USER_CONNECTIONS 0") // the server may end a connection later than its client
	find(clerk, "rights", lockdoctor.Error, "GRANT INSERT, UPDATE ON latchkey_fence")

	find(clerk, "secrets", lockdoctor.Error, "Grant the user SELECT, INSERT", lockdoctor.WithSession(session(t, clerk)),
		lockdoctor.WithKeyedNamespace(sqllock.Namespace("export").Keyed([]byte("a secret"))))

	execute(t, db, "SET GLOBAL read_only = ON")
	find(db, "primary", lockdoctor.Error, "SET GLOBAL read_only = OFF")
}

// The newest lib/pq knows several hosts.
func TestDoctorSeveralHosts(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		u, err := url.Parse(pgtest.Database(t))
		must(t, err)
		sslmode := "disable"
		if driver == "pgx" {
			sslmode = "prefer" // each host has a fallback then, which is no other host
		}
		for _, tt := range []struct {
			hosts    int
			settings string
			fix      string // empty: nothing to mend
		}{
			{2, "target_session_attrs=read-write connect_timeout=2", ""},
			{2, "connect_timeout=2", "target_session_attrs=read-write"},
			{2, "target_session_attrs=read-write connect_timeout=3", "Set connect_timeout=2 "},
			{2, "target_session_attrs=read-write", "Set connect_timeout=2 "},
			{3, "target_session_attrs=read-write connect_timeout=1", ""},
			{3, "target_session_attrs=read-write connect_timeout=2", "Set connect_timeout=1 "},
			{4, "target_session_attrs=read-write connect_timeout=1", "Name fewer hosts"},
		} {
			// The words of a connection string, which both drivers read. Only the last
			// of the ports has a server.
			hosts, ports := "127.0.0.1"+strings.Repeat(",127.0.0.1", tt.hosts-1), ""
			for i := 1; i < tt.hosts; i++ {
				ports += fmt.Sprint(i, ",")
			}
			dsn := fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=%s %s", hosts, ports+u.Port(), u.User.Username(), strings.TrimPrefix(u.Path, "/"), sslmode, tt.settings)
			want := lockdoctor.Warning
			if tt.fix == "" {
				want = lockdoctor.OK
			}
			db := open(t, driver, dsn)
			var r *lockdoctor.Report
			lockertest.Eventually(t, "the driver connects within its connect_timeout", func() bool {
				r = doctor(t, db)
				c, _ := r.Find("connection")
				return c.State == lockdoctor.OK
			})
			if c, _ := r.Find("driver"); c.State != want || !strings.Contains(c.Fix, tt.fix) {
				t.Errorf("%s, %d hosts, %q:\n%v", driver, tt.hosts, tt.settings, r)
			}
		}
	}
}
