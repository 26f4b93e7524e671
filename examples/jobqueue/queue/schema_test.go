package queue

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMissingTables(t *testing.T) {
	schema := strings.Join(Schema(), ";")
	tests := []struct {
		name string
		ddl  string
		want []string // in the error; nil: none
	}{
		{"no table", "", []string{"no table latchkey_fence", "queue.Schema"}},
		{"no jobs", "CREATE TABLE latchkey_fence (x int)", []string{"no table jobs", "queue.Schema"}},
		{"in another schema", "CREATE SCHEMA work; SET search_path = work;" + schema + "; RESET search_path", []string{`schema "work"`, "search_path"}},
		{"there", schema, nil},
		{"twice", schema + ";" + schema, nil},
	}
	kinds := Kinds{"k": {Work: record}}
	for _, driver := range pgtest.Drivers() {
		for _, tt := range tests {
			t.Run(tt.name+", "+driver, func(t *testing.T) {
				t.Parallel()
				db := open(t, driver, pgtest.Database(t))
				if _, err := db.Exec(tt.ddl); err != nil {
					t.Fatal(err)
				}
				_, err := Open(t.Context(), db, kinds)
				if tt.want == nil && err != nil {
					t.Errorf("Open: %v", err)
				}
				for _, want := range tt.want {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("Open: %v, want %q in it", err, want)
					}
				}
			})
		}
	}
}

// TestTwoSchemas: queues in two schemas of one database have jobs of the same
// ids, which do not hinder each other.
func TestTwoSchemas(t *testing.T) {
	for i, way := range append(ways[:2:2], ways...) {
		singleton := i < len(ways) // the kind's key is another one
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			setup := open(t, "pgx", dsn)
			for _, schema := range []string{"one", "two"} {
				if _, err := setup.Exec("CREATE SCHEMA " + schema); err != nil {
					t.Fatal(err)
				}
				f := newFixture(t, "pgx", within(t, dsn, schema), way.new)
				f.enqueue(Job{Kind: "k"})
				h := mustTake(t, f.process(Kinds{"k": {Work: record, Singleton: singleton}}))
				if h.job.ID != 1 {
					t.Fatalf("job %d, want the first of each schema", h.job.ID)
				}
				t.Cleanup(func() { h.giveUp(Abandoned) })
			}
		})
	}
}

func open(t *testing.T, driver, dsn string) *sqlx.DB {
	t.Helper()
	return sqlx.NewDb(dbtest.Open(t, driver, dsn), driver)
}

// within is dsn with a search_path.
func within(t *testing.T, dsn, schema string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	values := u.Query()
	values.Set("search_path", schema)
	u.RawQuery = values.Encode()
	return u.String()
}

// A table is dropped at run time. When it is there again the work goes on.
func TestTableGone(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		w := f.process(Kinds{"k": {Work: record}})
		f.exec("ALTER TABLE jobs RENAME TO gone")
		_, err := w.take(t.Context())
		if err == nil || !strings.Contains(err.Error(), "queue.Schema") {
			t.Errorf("take without the table: %v", err)
		}
		f.exec(effects)
		f.start(w, 2)
		f.exec("ALTER TABLE gone RENAME TO jobs")
		f.enqueue(Job{Kind: "k"})
		lockertest.Eventually(t, "it is done", func() bool { return f.with("done") == 1 })
	})
}

// TestNoHostInErrors: a driver's error names host, port and user; ours do not.
func TestNoHostInErrors(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		db := open(t, driver, "postgres://alice:secret@127.0.0.1:1/ledger?sslmode=disable")
		_, openErr := Open(t.Context(), db, Kinds{"k": {Work: record}})
		_, enqueueErr := Enqueue(t.Context(), db, Job{Kind: "k"})
		for _, err := range []error{openErr, enqueueErr} {
			if !errors.Is(err, ErrUnavailable) {
				t.Fatalf("%s: %v, want ErrUnavailable", driver, err)
			}
			for _, private := range []string{"127", "alice", "secret", "ledger"} {
				if strings.Contains(err.Error(), private) {
					t.Errorf("%s: the error %q shows %q", driver, err, private)
				}
			}
		}
	}
}

func TestMisuse(t *testing.T) {
	kinds := Kinds{"k": {Work: record}}
	tests := map[string]func(){
		"no database":   func() { _, _ = Open(t.Context(), nil, kinds) },
		"no kinds":      func() { _, _ = Open(t.Context(), open(t, "pgx", ""), nil) },
		"no work":       func() { _, _ = Open(t.Context(), open(t, "pgx", ""), Kinds{"k": {}}) },
		"no locks":      func() { AdvisoryLock(&Queue{}, nil) },
		"no queue":      func() { SkipLocked(nil, nil) },
		"no workers":    func() { Run(t.Context(), nil, 0) },
		"no poll":       func() { WithPoll(0) },
		"no backoff":    func() { WithBackoff(-1) },
		"no floor":      func() { WithReapFloor(0) },
		"no logger":     func() { WithLogger(nil) },
		"no ended func": func() { WithEnded(nil) },
	}
	for name, misuse := range tests {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "queue: ") {
					t.Errorf("panic %q, want one of this package", text)
				}
			}()
			misuse()
		})
	}
}
