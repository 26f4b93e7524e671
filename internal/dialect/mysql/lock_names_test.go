package mysql

import (
	"math"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A lock name is valid in MySQL: it is ASCII and has at most 64 bytes. It leads
// back to its key, so no two keys share one. Names of other databases, of
// sessions and of other programs lead to none.
func TestLockNames(t *testing.T) {
	t.Parallel()
	names := newLockNames([]byte("app"))
	for _, space := range []dialect.Space{dialect.Bigint, dialect.TwoInts} {
		for _, id := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64, -7<<32 | 8} {
			key := dialect.Key{Space: space, ID: id}
			quoted := string(names.appendName(nil, key))
			if len(quoted) != len(names.ofSession(0))+2 || len(quoted) > 64+2 || strings.Trim(quoted, "'abcdefghijklmnopqrstuvwxyz0123456789.") != "" {
				t.Errorf("name %s", quoted)
			}
			if got, ok := names.key(quoted[1 : len(quoted)-1]); !ok || got != key {
				t.Errorf("%s: %v, %t; want %v", quoted, got, ok, key)
			}
		}
	}
	other := string(newLockNames([]byte("other")).appendName(nil, dialect.Key{}))
	for _, name := range []string{"", names.prefix, names.ofSession(1), other[1 : len(other)-1], names.prefix + "0.000000000000000g", names.prefix + "2.0000000000000000", names.prefix + "0.00", names.prefix + "0.000000000000000A"} {
		if key, ok := names.key(name); ok {
			t.Errorf("%q: %v", name, key)
		}
	}
}

// The name of a session's lock stays, so that two versions find it.
func TestSessionLockName(t *testing.T) {
	t.Parallel()
	if got, want := newLockNames([]byte("app")).ofSession(0xab), "latchkey.a172cedc.s.00000000000000ab"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A statement that waits shows the lock that it waits for, if it names only one.
func TestWaitedFor(t *testing.T) {
	t.Parallel()
	const name = "latchkey.01234567.0.0000000000000001"
	for statement, want := range map[string]string{
		"SELECT GET_LOCK('" + name + "', 10)":                               name,
		"do get_lock ( \"" + name + "\",10)":                                name,
		"SELECT GET_LOCK('" + name + "', 1), GET_LOCK('" + name + "', 1)":   name,
		"SELECT GET_LOCK('" + name + "', 1), GET_LOCK('" + name + "2', 10)": "",
		"SELECT IS_FREE_LOCK('" + name + "')":                               "",
		"SELECT GET_LOCK(?, 10)":                                            "",
	} {
		if got := waitedFor(statement); got != want {
			t.Errorf("%s: %q, want %q", statement, got, want)
		}
	}
}
