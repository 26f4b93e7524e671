package pgtest

import (
	"database/sql"
	"runtime"
	"testing"
	"time"
)

// wantOffset checks that the server's clock is off by d. It uses a connection
// that exists already.
func wantOffset(t *testing.T, db *sql.DB, d time.Duration) {
	t.Helper()
	var server time.Time
	before := time.Now()
	if err := db.QueryRow("SELECT clock_timestamp()").Scan(&server); err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	// The server counts whole microseconds.
	if server.Before(before.Add(d).Truncate(time.Microsecond)) || server.After(after.Add(d)) {
		t.Errorf("the server's clock is between %v and %v off, want %v", server.Sub(after), server.Sub(before), d)
	}
}

func TestLongStepClock(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs LD_PRELOAD")
	}
	c, err := Start(WithClock())
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	for _, driver := range Drivers() {
		must(t, c.StepClock(-c.stepped))
		db := open(t, driver, c.DSN(""))
		db.SetMaxOpenConns(1)
		wantOffset(t, db, 0)
		for _, step := range []struct{ by, want time.Duration }{
			{time.Hour, time.Hour},
			{-2 * time.Hour, -time.Hour},
			{1500 * time.Microsecond, -time.Hour + 1500*time.Microsecond},
		} {
			must(t, c.StepClock(step.by))
			wantOffset(t, db, step.want)
		}
	}
	stepped := c.stepped
	must(t, c.Restart(true))
	wantOffset(t, open(t, "pgx", c.DSN("")), stepped)
}

func TestStepClockRefused(t *testing.T) {
	t.Parallel()
	if New(t).StepClock(time.Second) == nil {
		t.Error("the clock of a server without one of its own was stepped")
	}
}
