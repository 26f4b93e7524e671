package sqllock_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Golden vectors: instances that computed different keys would not exclude each
// other. sha256sum and openssl computed these numbers, not this code.
func TestKeyGolden(t *testing.T) {
	t.Parallel()
	export := sqllock.Namespace("export")
	keyed := export.Keyed([]byte("secret"))
	tests := []struct {
		name string
		key  sqllock.Key
		want int64
	}{
		{"name", export.Key("user-1"), goldenUser1},
		{"empty name", export.Key(""), goldenEmpty},
		{"unicode", export.Key("Zoë"), goldenUnicode},
		{"slot 0", export.SlotKey("user-1", 0), goldenUser1},
		{"slot 1", export.SlotKey("user-1", 1), goldenSlot1},
		{"slot 12", export.SlotKey("user-1", 12), goldenSlot12},
		{"keyed", keyed.Key("user-1"), goldenKeyed},
		{"keyed slot 0", keyed.SlotKey("user-1", 0), goldenKeyed},
		{"keyed slot 1", keyed.SlotKey("user-1", 1), goldenKeyedSlot1},
		{"id", sqllock.ID(-5), -5},
		{"pair", sqllock.Pair(1, 2), 1<<32 | 2},
		{"negative pair", sqllock.Pair(-1, -2), -2},
	}
	for _, tt := range tests {
		if got := tt.key.Int64(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

const (
	goldenUser1      = -1637517681989069423
	goldenEmpty      = -2121848016430590236
	goldenUnicode    = 702310314353111958
	goldenSlot1      = 4072623522593766226
	goldenSlot12     = 2069338862661020546
	goldenKeyed      = -5415376405328024477
	goldenKeyedSlot1 = -2953465946800819351
)

func TestKeyNamespaces(t *testing.T) {
	t.Parallel()
	a, b := sqllock.Namespace("a"), sqllock.Namespace("b")
	if a.Key("x") == b.Key("x") {
		t.Error("two namespaces share a key")
	}
	if once, again := a.Key("x"), sqllock.Namespace("a").Key("x"); once != again {
		t.Error("a key does not equal itself")
	}
	if got := a.SlotKey("x", 3).Namespace(); got != a {
		t.Errorf("namespace of a slot key: %q, want %q", got, a)
	}
	if got := a.Keyed([]byte("s")).Key("x").Namespace(); got != a {
		t.Errorf("namespace of a keyed key: %q, want %q", got, a)
	}
	if got := sqllock.ID(1).Namespace(); got != "" {
		t.Errorf("namespace of an ID: %q", got)
	}
	if sqllock.Pair(0, 7) == sqllock.ID(7) {
		t.Error("a pair equals an id")
	}
	if sqllock.ID(0) != (sqllock.Key{}) {
		t.Error("the zero Key is not ID(0)")
	}
	// The key does not contain the name: a key may be logged, a name may not.
	if s := fmt.Sprintf("%v %+v %#v", a.Key("somebody"), a.Key("somebody"), a.Key("somebody")); strings.Contains(s, "somebody") {
		t.Errorf("a key shows its name: %s", s)
	}
}

func TestKeyPair(t *testing.T) {
	t.Parallel()
	pairs := []struct{ class, object int32 }{
		{0, 0}, {0, 7}, {1, 2}, {1, -2}, {-1, 2}, {-1, -2},
		{math.MinInt32, math.MaxInt32}, {math.MaxInt32, math.MinInt32}, {math.MinInt32, math.MinInt32},
	}
	for _, p := range pairs {
		key := sqllock.Pair(p.class, p.object)
		class, object, ok := key.Pair()
		if class != p.class || object != p.object || !ok {
			t.Errorf("Pair(%d, %d): %d, %d, %t", p.class, p.object, class, object, ok)
		}
		for name, other := range map[string]sqllock.Key{
			"the id of its bits": sqllock.ID(key.Int64()),
			"a name":             sqllock.Namespace("a").Key("x"),
		} {
			if class, object, ok := other.Pair(); class != 0 || object != 0 || ok {
				t.Errorf("%s: %d, %d, %t, want none", name, class, object, ok)
			}
		}
	}
}

func TestKeyMisusePanics(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		call func()
		want string
	}{
		{"empty", func() { sqllock.Namespace("").Key("x") }, "must not be empty"},
		{"colon", func() { sqllock.Namespace("a:b").Key("x") }, "':'"},
		{"hash sign", func() { sqllock.Namespace("a#b").SlotKey("x", 1) }, "'#'"},
		{"slot", func() { sqllock.Namespace("a").SlotKey("x", -1) }, "zero or more"},
		{"secret", func() { sqllock.Namespace("a").Keyed(nil) }, "secret"},
		{"keyed", func() { sqllock.Namespace("").Keyed([]byte("s")) }, "must not be empty"},
		{"zero keyed", func() { var k sqllock.KeyedNamespace; k.Key("x") }, "must not be empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				got := fmt.Sprint(recover())
				if !strings.HasPrefix(got, "sqllock: ") || !strings.Contains(got, tt.want) {
					t.Errorf("panic %q, want one of sqllock that says %q", got, tt.want)
				}
			}()
			tt.call()
		})
	}
}

func FuzzKey(f *testing.F) {
	f.Add("export", "user-1", 0, []byte("secret"))
	f.Add("n", "", 3, []byte{0})
	f.Add("namespace", strings.Repeat("long", 100), 11, []byte("k"))
	f.Fuzz(func(t *testing.T, ns, id string, slot int, secret []byte) {
		if ns == "" || strings.ContainsAny(ns, ":#") || slot < 0 || len(secret) == 0 {
			return
		}
		prefix := ns
		if slot > 0 {
			prefix = fmt.Sprintf("%s#%d", ns, slot)
		}
		n := sqllock.Namespace(ns)
		sum := sha256.Sum256([]byte(prefix + ":" + id))
		if got, want := n.SlotKey(id, slot).Int64(), int64(binary.BigEndian.Uint64(sum[:8])); got != want {
			t.Errorf("SlotKey: %d, want %d", got, want)
		}
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(prefix + ":" + id))
		if got, want := n.Keyed(secret).SlotKey(id, slot).Int64(), int64(binary.BigEndian.Uint64(mac.Sum(nil)[:8])); got != want {
			t.Errorf("keyed SlotKey: %d, want %d", got, want)
		}
	})
}
