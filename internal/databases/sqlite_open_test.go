package databases

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

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
