package pgtest

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// A small disk is full when the test says so, also for the server, and keeps its
// files over a restart.
func TestLongSmallDisk(t *testing.T) {
	t.Parallel()
	c, err := Start(WithSmallDisk(24, false), WithSettings(map[string]string{"synchronous_commit": "on"}))
	if errors.Is(err, ErrNoMounts) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	db := open(t, "pgx", c.DSN(""))
	if _, err := db.Exec("CREATE TABLESPACE small LOCATION '" + c.SmallDisk() + "'"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE t TABLESPACE small AS SELECT repeat('x', 1000) FROM generate_series(1, 100)"); err != nil {
		t.Fatal(err)
	}
	if err := c.FillDisk(); err != nil {
		t.Fatal(err)
	}
	const insert = "INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 5000)"
	_, err = db.Exec(insert)
	if pg := (*pgconn.PgError)(nil); !errors.As(err, &pg) || pg.Code != "53100" {
		t.Errorf("INSERT on a full disk: %v, want 53100", err)
	}
	for _, step := range []func() error{c.Kill, c.MakeRoom, c.StartAgain} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	db = open(t, "pgx", c.DSN(""))
	if _, err := db.Exec(insert); err != nil {
		t.Errorf("INSERT after room was made: %v", err)
	}
}
