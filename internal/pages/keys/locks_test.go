package keys

import (
	"bufio"
	"errors"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A lock on the pair of the page's SQL excludes Go until it is released. A pair
// has no computation, which TestKeysPageSQL would check.
func TestKeysPageExcludes(t *testing.T) {
	page := readKeysPage(t)
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		conn := connection(t, open(t, driver, dsn))
		s := session(t, driver, dsn)
		for _, class := range []int32{1, -1, math.MinInt32, math.MaxInt32} {
			object := -class - 1
			key := sqllock.Pair(class, object)
			take := page.query(t, "Pairs: type and id", 0).with(t, strconv.Itoa(int(class)), strconv.Itoa(int(object)))
			expectBool(t, conn, take, true)
			if _, err := s.TryLock(t.Context(), key); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("TryLock of pair %d, %d: %v, want ErrHeld", class, object, err)
			}
			expectBool(t, conn, strings.Replace(take, "pg_try_advisory_lock", "pg_advisory_unlock", 1), true)
			lock := mustLock(t, s, key)
			expectBool(t, conn, take, false)
			unlock(t, lock)
		}
	})
}

// The page's blocks run unchanged in psql. While psql holds the keys, Go is
// rejected. After psql ends, Go is granted the locks.
func TestKeysPagePsqlHolds(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("psql") // packages of the server do not always include it
	if err != nil {
		t.Skip("the page's SQL is not checked in psql here: it is not in PATH; TestKeysPageSQL checks it through the drivers")
	}
	page, dsn := readKeysPage(t), pgtest.Database(t)
	cmd := exec.CommandContext(t.Context(), program, "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", dsn)
	stdin, _ := cmd.StdinPipe()
	stdout, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer stdin.Close()
	s := session(t, "pgx", dsn)
	results := bufio.NewScanner(stdout)
	keys := map[pageFunction]sqllock.Key{
		{"Names", 0}:                     sqllock.Namespace("export").Key("user-1"),
		{"Slots", 0}:                     sqllock.Namespace("export").SlotKey("user-1", 3),
		{"Type and id in one bigint", 0}: compositeKey(classOrder, 42),
		{"Pairs: type and id", 0}:        sqllock.Pair(classOrder, 42),
	}
	for f, key := range keys {
		block := page[f.section]["sql"][f.block]
		if f.section != "Pairs: type and id" {
			block = strings.TrimSuffix(block, ";") + " \\gset\nSELECT pg_try_advisory_lock(:key);"
		}
		if _, err := stdin.Write([]byte(block + "\n")); err != nil {
			t.Fatal(err)
		}
		if !results.Scan() || results.Text() != "t" {
			t.Fatalf("%v: psql says %q, want t", f, results.Text())
		}
		if _, err := s.TryLock(t.Context(), key); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("%v: TryLock: %v, want ErrHeld", f, err)
		}
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	for f, key := range keys {
		lockertest.Eventually(t, "psql's locks are free", func() bool {
			lock, err := s.TryLock(t.Context(), key)
			if err != nil && !errors.Is(err, sqllock.ErrHeld) {
				t.Fatalf("%v: TryLock: %v", f, err)
			}
			return err == nil && lock.Unlock() == nil
		})
	}
}
