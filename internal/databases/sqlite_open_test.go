package databases

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A program opens a file that another one keeps locked for longer than a statement
// waits. It goes on as soon as the file is free.
func TestSQLiteOpenedWhileLocked(t *testing.T) {
	t.Parallel()
	dsn := "file:" + filepath.Join(t.TempDir(), "locked.db")
	other := dbtest.Conn(t, open(t, "sqlite", dsn))
	for _, statement := range []string{"CREATE TABLE t (n)", "BEGIN EXCLUSIVE"} {
		if _, err := other.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	free := time.AfterFunc(700*time.Millisecond, func() { _, _ = other.ExecContext(context.Background(), "ROLLBACK") })
	s, err := sqllock.Open(t.Context(), open(t, "sqlite", dsn))
	if err != nil {
		t.Fatal(err)
	}
	if free.Stop() {
		t.Error("the file was opened while it was locked")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Programs that start at the same moment all open a file that none of them has
// seen before. One of them sets its journal, with the file locked for a moment.
func TestSQLiteOpenedAtOnce(t *testing.T) {
	t.Parallel()
	const programs = 4
	for range 25 {
		o := lockertest.Orders{Driver: "sqlite", DSN: "file:" + filepath.Join(t.TempDir(), "new.db")}
		var opened sync.WaitGroup
		errs := make([]error, programs)
		for i := range programs {
			db := open(t, o.Driver, o.DSN)
			opened.Go(func() {
				s, err := sqllock.Open(t.Context(), db)
				if err == nil {
					err = s.Close()
				}
				errs[i] = err
			})
		}
		opened.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("of %d programs: %v", programs, err)
		}
	}
}
