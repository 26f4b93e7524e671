//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A server that does not respond is no free key: the exit code is not 1. A list
// that is watched goes on.
func TestLongPsOfAFrozenServer(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	watch := start(t, cluster.DSN(""), "ps", "--json", "--watch", "10ms", "a:b")
	watch.line()
	if err := cluster.Freeze(); err != nil {
		t.Fatal(err)
	}
	once := start(t, cluster.DSN(""), "ps", "a:b")
	once.wantCode(66)
	if text := once.said(); !strings.Contains(text, "the database did not respond") {
		t.Errorf("it said %q", text)
	}
	lockertest.Eventually(t, "the watched list reports it", func() bool { return strings.Contains(watch.said(), "did not respond") })
	if err := cluster.Thaw(); err != nil {
		t.Fatal(err)
	}
	thawed := time.Now()
	lockertest.Eventually(t, "the watched list goes on", func() bool {
		var seen struct{ At time.Time }
		return json.Unmarshal([]byte(watch.line()), &seen) == nil && seen.At.After(thawed)
	})
	if err := watch.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = watch.rest()
	watch.wantCode(0)
}

// No error of a look has the exit code 1, which says that a key is free.
func TestLookError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want int
	}{
		{context.DeadlineExceeded, exitNoDatabase},
		{context.Canceled, exitNoDatabase},
		{errors.New("permission denied"), exitConfig},
		{fmt.Errorf("x: %w", sqllock.ErrUnavailable), exitNoDatabase},
		{fmt.Errorf("x: %w", sqllock.ErrCapacity), exitSystem},
		{errors.ErrUnsupported, exitConfig},
	} {
		if got := codeOf(lookError(tt.err)); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.err, got, tt.want)
		}
	}
}

// The JSON has what the text has of callers that wait: their Session, and the key
// that they hold. It says which tables were read.
func TestPsJSON(t *testing.T) {
	t.Parallel()
	held := sqllock.ID(7)
	line, err := json.Marshal(newSnapshotJSON(lockwatch.NewView(&lockwatch.Snapshot{
		Waiters:    []lockwatch.Waiter{{Key: sqllock.ID(8), Poll: &lockwatch.Poll{Session: 1 << 60, Callers: 3, Held: &held, Holder: "b/2"}}},
		Holders:    []lockwatch.Holder{{Key: held, Registration: &lockwatch.Registration{Session: 1<<60 + 1}}},
		Heartbeats: lockwatch.TableRead, Waits: lockwatch.TableMissing,
	}), false))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"session":"1152921504606846976","holder":"b/2","callers":3,"holding":"7"`, `"session":"1152921504606846977"`,
		`"tables":{"latchkey_heartbeats":"read","latchkey_waits":"missing"}`, `"cycles":[]`} {
		if !strings.Contains(string(line), want) {
			t.Errorf("no %s in %s", want, line)
		}
	}
}

// Where a key may be held though the look does not show it, the exit code is not 1.
func TestPsOfWhatIsNotSeen(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	admin := dbtest.Conn(t, dbtest.Open(t, "pgx", dsn))
	role := "reader_of_" + strings.TrimPrefix(u.Path, "/")
	dbtest.ExecuteOn(t, admin, "CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() { dbtest.ExecuteOn(t, admin, "DROP ROLE "+role) })
	u.User = url.User(role)
	lock := func(key sqllock.Key, opts ...sqllock.Option) {
		locks, err := sqllock.Open(t.Context(), dbtest.Open(t, "pgx", dsn+"&default_query_exec_mode=exec"), opts...)
		if err == nil {
			t.Cleanup(func() { _ = locks.Close() })
			_, err = locks.TryLock(t.Context(), key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	look := func(address, key string, code int, says string) {
		t.Helper()
		p := start(t, address, "ps", key)
		_ = p.rest()
		p.wantCode(code)
		if !strings.Contains(p.said(), says) {
			t.Errorf("ps %s says %q, want %q in it", key, p.said(), says)
		}
	}
	lock(sqllock.Namespace("export").Keyed([]byte("secret")).Key("ada"))
	look(dsn, "export:ada", exitConfig, "with a secret")
	look(dsn, "import:ada", exitFailure, "mistyped")
	lock(sqllock.ID(7), sqllock.WithLeaseTable())
	look(dsn, "7", 0, "")
	look(u.String(), "7", exitConfig, "not known whether")
}

// A key of a limit is busy while any of its slots is. Of a free key, ps says that
// nothing of its namespace is known.
func TestPsSlots(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := dbtest.Open(t, "pgx", dsn)
	dbtest.ExecuteOn(t, dbtest.Conn(t, db), "SELECT pg_advisory_lock("+keyText(sqllock.Namespace("export").SlotKey("ada", 2))+")")
	busy := start(t, dsn, "ps", "export:ada")
	if text := busy.rest(); !strings.Contains(text, "(slot 2)") || strings.Contains(busy.said(), "mistyped") {
		t.Errorf("it printed %q and said %q", text, busy.said())
	}
	busy.wantCode(0)
	asJSON := start(t, dsn, "ps", "--json", "export:ada")
	if text := asJSON.rest(); !strings.Contains(text, `"slot":2`) {
		t.Errorf("the JSON is %s", text)
	}
	for _, key := range []string{"exprot:ada", "export:bob"} {
		free := start(t, dsn, "ps", key)
		free.wantCode(1)
		if text := free.said(); !strings.Contains(text, "nothing of that namespace is known") || strings.Contains(text, "ada") {
			t.Errorf("of %s it said %q", key, text)
		}
	}
}

// Only run makes a file of SQLite. A mistyped path is not a healthy database
// without locks.
func TestMistypedFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "typo.db")
	for _, tt := range []struct {
		address string
		args    []string
	}{
		{file, []string{"ps"}},
		{"sqlite:" + file, []string{"ps", "a:b"}},
		{"sqlite://" + file, []string{"doctor"}},
		{"file:" + file, []string{"ui", "--listen", "127.0.0.1:0"}},
		{"file:" + file + "?mode=rwc", []string{"ps"}},
	} {
		p := start(t, tt.address, tt.args...)
		p.wantCode(66)
		if text := p.said(); !strings.Contains(text, "no such file") || strings.Contains(text, "typo") {
			t.Errorf("%v said %q", tt.args, text)
		}
		if _, err := os.Stat(file); err == nil {
			t.Fatal("the file was made")
		}
	}
	start(t, file, "run", "a:b", "true").wantCode(0)
	start(t, file, "ps").wantCode(0)
	free := start(t, file, "ps", "a:b") // no Session can write down the names of this database
	free.wantCode(1)
	if text := free.said(); text != "" {
		t.Errorf("of a free key it said %q", text)
	}
	start(t, "sqlite::memory:", "ps").wantCode(0)
}

// keyText returns key as the argument of PostgreSQL's functions.
func keyText(key sqllock.Key) string { return strconv.FormatInt(key.Int64(), 10) }
