package protocol

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/http"
	"strconv"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Each key of the page has its number, which sha256sum and openssl computed.
func TestProtocolKeys(t *testing.T) {
	t.Parallel()
	export := sqllock.Namespace("export")
	keyed := export.Keyed([]byte("secret"))
	keys := map[string]sqllock.Key{
		`Namespace("export").Key("user-1")`:                        export.Key("user-1"),
		`Namespace("export").Key("")`:                              export.Key(""),
		`Namespace("export").Key("Zoë")`:                           export.Key("Zoë"),
		`Namespace("export").SlotKey("user-1", 0)`:                 export.SlotKey("user-1", 0),
		`Namespace("export").SlotKey("user-1", 1)`:                 export.SlotKey("user-1", 1),
		`Namespace("export").SlotKey("user-1", 12)`:                export.SlotKey("user-1", 12),
		`Namespace("export").Keyed("secret").Key("user-1")`:        keyed.Key("user-1"),
		`Namespace("export").Keyed("secret").SlotKey("user-1", 1)`: keyed.SlotKey("user-1", 1),
		`ID(-5)`:       sqllock.ID(-5),
		`Pair(1, 2)`:   sqllock.Pair(1, 2),
		`Pair(-1, -2)`: sqllock.Pair(-1, -2),
	}
	for _, row := range Table(t, "key") {
		key, ok := keys[row[0]]
		got := strconv.FormatInt(key.Int64(), 10)
		if _, _, pair := key.Pair(); pair {
			got += " in the other key space"
		}
		if !ok || got != row[1] {
			t.Errorf("%s: %s, on the page %s", row[0], got, row[1])
		}
		delete(keys, row[0])
	}
	if len(keys) > 0 {
		t.Errorf("not on the page: %v", keys)
	}
}

// A limit holds the places of the page: their numbers are held for every other
// program, and after the Unlock they are free.
func TestProtocolLimits(t *testing.T) {
	t.Parallel()
	joined, err := httpmw.Join(
		func(*http.Request) (string, error) { return "user-1", nil },
		func(*http.Request) (string, error) { return "7", nil })(nil)
	if err != nil {
		t.Fatal(err)
	}
	locks, two := sqllock.NewMemory(), sqllock.NewMemory()
	three := ratelimit.AtMost(3, two, "export")
	limits := []struct {
		what, id string
		locks    *sqllock.Memory
		limit    *ratelimit.Limiter
	}{
		{`OneAtATime(locks, "export")` + "`, id user-1", "user-1", locks, ratelimit.OneAtATime(locks, "export")},
		{`OneAtATime(locks, "export", WithKeySecret("secret"))`, "user-1", locks, ratelimit.OneAtATime(locks, "export", ratelimit.WithKeySecret([]byte("secret")))},
		{`AtMost(3, locks, "export")` + "`, place 0", "user-1", two, three},
		{"place 1", "user-1", two, three},
		{"place 2", "user-1", two, three},
		{"Join` of the parts user-1 and 7", joined, locks, ratelimit.OneAtATime(locks, "export")},
	}
	rows := Table(t, "place of a limit, or request")
	for i, l := range limits {
		number, err := strconv.ParseInt(rows[i][2], 10, 64)
		if err != nil || rows[i][0] != l.what {
			t.Fatalf("row %q, %v; want %q", rows[i][0], err, l.what)
		}
		held, err := l.limit.Acquire(t.Context(), l.id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.locks.TryLock(t.Context(), sqllock.ID(number)); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("%s: the number %d is not held: %v", l.what, number, err)
		}
		if l.locks != two { // whose places stay held, so that the next one is another
			dbtest.Unlock(t, held)
			dbtest.Unlock(t, dbtest.Lock(t, l.locks, sqllock.ID(number)))
		}
	}
	for _, row := range rows {
		sum := sha256.Sum256([]byte(row[1]))
		number := strconv.FormatInt(int64(binary.BigEndian.Uint64(sum[:])), 10) //nolint:gosec // a part of a hash
		if row[1] != "the same, by HMAC" && number != row[2] {
			t.Errorf("%s: the page's text has the number %s, and not %s", row[0], number, row[2])
		}
	}
	if n := len(rows) - len(limits); n != 1 { // that of idempotency
		t.Errorf("%d further rows, want 1", n)
	}
}
