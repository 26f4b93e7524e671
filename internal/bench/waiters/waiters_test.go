package waiters

import (
	"context"
	"database/sql"
	"os"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// parentRole is the role of a parent, on the database that its orders name.
const parentRole = "parent of waiters"

func TestMain(m *testing.M) {
	bound.Lengthen()
	Main()
	subprocess.Main(parentRole, func(ctx context.Context, dsn string) error {
		_, err := Run(context.WithoutCancel(ctx), config(Session, dsn, time.Minute), 2, nil)
		return err
	})
	os.Exit(pgtest.Main(m))
}

func config(how, dsn string, measure time.Duration) Config {
	return Config{How: how, Postgres: dsn, Connections: 4, Callers: 8, Keys: 2, Measure: measure}
}

func TestShares(t *testing.T) {
	tests := []struct {
		grants      []int64
		least, most float64
	}{
		{[]int64{5, 5, 5, 5}, 0.25, 0.25},
		{[]int64{1, 0, 3, 4}, 0, 0.5},
		{[]int64{7}, 1, 1},
		{[]int64{0, 0}, 0, 0},
		{nil, 0, 0},
	}
	for _, tt := range tests {
		o := &Outcome{Grants: tt.grants}
		if least, most := o.Shares(); least != tt.least || most != tt.most {
			t.Errorf("shares of %v are %v to %v, want %v to %v", tt.grants, least, most, tt.least, tt.most)
		}
	}
}

func TestRun(t *testing.T) {
	for _, how := range []string{Session, AdvisoryLock} {
		t.Run(how, func(t *testing.T) {
			begun := false
			o := runUntil(t, config(how, pgtest.Database(t), 200*time.Millisecond), func() { begun = true },
				func(o *Outcome) bool { return o.Waits.TotalCount() > 0 })
			if len(o.Grants) != 2 || o.Total() == 0 || o.Errors != 0 || !begun {
				t.Errorf("grants %v, %d errors (%s), begun %v", o.Grants, o.Errors, o.First, begun)
			}
			if o.Waits.ValueAtQuantile(50) > o.Waits.ValueAtQuantile(99) {
				t.Errorf("%d waits, p50 %d, p99 %d", o.Waits.TotalCount(), o.Waits.ValueAtQuantile(50), o.Waits.ValueAtQuantile(99))
			}
			if o.Elapsed <= 0 || o.CPU <= 0 {
				t.Errorf("measured for %v, %v of processor time", o.Elapsed, o.CPU)
			}
		})
	}
}

// runUntil runs c in two processes until enough has happened. A busy machine
// may need a longer run for that.
func runUntil(t *testing.T, c Config, begun func(), enough func(*Outcome) bool) *Outcome {
	t.Helper()
	for ; ; c.Measure *= 2 {
		o, err := Run(t.Context(), c, 2, begun)
		if err != nil {
			t.Fatal(err)
		}
		if enough(o) {
			return o
		}
		if c.Measure > 30*time.Second {
			t.Fatalf("too little happened in %v: %+v", c.Measure, o)
		}
	}
}

func TestRunFails(t *testing.T) {
	if _, err := Run(t.Context(), config("by luck", pgtest.Database(t), time.Minute), 2, nil); err == nil {
		t.Error("processes that could not begin are no error")
	}
}

// The processes of a parent that is killed end with it.
func TestOrphans(t *testing.T) {
	dsn := pgtest.Database(t)
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	parent, err := subprocess.Start(parentRole, dsn)
	if err != nil {
		t.Fatal(err)
	}
	awaitOthers(t, db, func(n int) bool { return n >= 2 })
	if err := parent.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitOthers(t, db, func(n int) bool { return n == 0 })
}

// awaitOthers waits until the number of the database's other connections is as
// it should be.
func awaitOthers(t *testing.T, db *sql.DB, ok func(n int) bool) {
	t.Helper()
	const query = `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var n int
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if ok(n) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d other connections", n)
		}
	}
}
