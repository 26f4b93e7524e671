package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/leasetable"
	"github.com/latchkey-go/latchkey/internal/lockertest"
)

// A fault makes one statement fail, before or after its effect. It serves one
// goroutine.
type fault struct {
	at    int // the number of the statement, from 1; 0 means none
	after bool
	met   string // the statement
}

func (f *fault) intercept(query string, carryOut func() error) error {
	if f.at == 0 {
		return carryOut()
	}
	if f.at--; f.at > 0 {
		return carryOut()
	}
	f.met = strings.Join(strings.Fields(query), " ")
	if f.after {
		if err := carryOut(); err != nil {
			return err
		}
	}
	return errors.New("the fault")
}

// Any statement of a session in SQLite may fail, before or after its effect. No
// transaction stays open in the pool, the connection gets its settings back,
// and the session goes on.
func TestSQLiteFaults(t *testing.T) {
	t.Parallel()
	calls := []struct {
		name string
		call func(dialect.Session) error
	}{
		{"take", func(s dialect.Session) error {
			return s.Exchange(&dialect.Batch{Try: big(1, 2), Looks: []dialect.Look{{Keys: big(10, 3), Want: 1}, {Keys: big(4, 6), Want: 2}}})
		}},
		{"release", func(s dialect.Session) error {
			return s.Exchange(&dialect.Batch{Release: big(1, 2, 77), Try: big(5)})
		}},
		{"stack", func(s dialect.Session) error {
			return s.Exchange(&dialect.Batch{Stacks: []dialect.Stack{{Levels: [][]dialect.Key{big(7), big(10)}}}})
		}},
		{"Token", func(s dialect.Session) error { _, err := s.Token(); return err }},
		{"Held", func(s dialect.Session) error { _, err := s.Held(); return err }},
		{"Destroy", func(s dialect.Session) error { s.Destroy(); return nil }},
	}
	for synchronous, name := range []string{1: "normal", 2: "full"} {
		for _, after := range []bool{false, true} {
			if name == "" {
				continue
			}
			t.Run(fmt.Sprintf("synchronous %s, after %v", name, after), func(t *testing.T) {
				t.Parallel()
				f := &fault{after: after}
				o := lockertest.Orders{Driver: "sqlite", DSN: "file:" + filepath.Join(t.TempDir(), "app.db") +
					"?_pragma=busy_timeout(4321)&_pragma=synchronous(" + name + ")"}
				db := intercepted(t, o, f.intercept)
				db.SetMaxOpenConns(1)
				for at := 1; ; at++ {
					f.at = at
					s, err := leasetable.SQLite{}.Open(context.Background(), db, settings)
					if f.at > 0 {
						s.Destroy()
						break
					}
					unharmed(t, db, "Open: "+f.met, synchronous)
					if err == nil {
						s.Destroy()
					}
				}
				for _, tt := range calls {
					for at := 1; ; at++ {
						s := connectTo(t, db, false)
						exchange(t, s, dialect.Batch{Try: big(10)})
						f.at = at
						_ = tt.call(s)
						if f.at > 0 {
							f.at = 0
							s.Destroy()
							break
						}
						unharmed(t, db, tt.name+": "+f.met, synchronous)
						if tt.name == "Destroy" {
							execute(t, db, "DELETE FROM latchkey_sessions") // it may have failed
							execute(t, db, "DELETE FROM latchkey_locks")
							continue
						}
						if err := s.Exchange(&dialect.Batch{Release: big(10)}); err != nil {
							t.Errorf("%s: %s: then Exchange: %v", tt.name, f.met, err)
						}
						s.Destroy()
					}
				}
			})
		}
	}
}

// unharmed checks the settings of the pool's one connection, and that it is in
// no transaction.
func unharmed(t *testing.T, db *sql.DB, what string, synchronous int) {
	t.Helper()
	for pragma, want := range map[string]int{"busy_timeout": 4321, "synchronous": synchronous} {
		if got := number(t, db, "PRAGMA "+pragma); got != want {
			t.Errorf("%s: %s is %d, want %d", what, pragma, got, want)
		}
	}
	for _, statement := range []string{"BEGIN IMMEDIATE", "ROLLBACK"} { // BEGIN fails inside a transaction
		if _, err := db.Exec(statement); err != nil {
			t.Errorf("%s: then %s: %v", what, statement, err)
		}
	}
}
