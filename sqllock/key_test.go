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
		{"outermost pair", sqllock.Pair(math.MinInt32, math.MaxInt32), math.MinInt64 | math.MaxInt32},
	}
	for _, tt := range tests {
		if got := tt.key.Int64(); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
		class, object, ok := tt.key.Pair()
		if isPair := strings.Contains(tt.name, "pair"); ok != isPair || ok && sqllock.Pair(class, object) != tt.key || !ok && (class != 0 || object != 0) {
			t.Errorf("%s: the pair is %d, %d, %t", tt.name, class, object, ok)
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

func TestKeyMisusePanics(t *testing.T) {
	t.Parallel()
	for want, call := range map[string]func(){
		"a Namespace must not be empty":           func() { sqllock.Namespace("").Key("x") },
		"a Namespace must hold neither ':'":       func() { sqllock.Namespace("a:b").Key("x") },
		"a Namespace must hold neither ':' nor '": func() { sqllock.Namespace("a#b").SlotKey("x", 1) },
		"SlotKey needs a slot number":             func() { sqllock.Namespace("a").SlotKey("x", -1) },
		"Keyed needs a secret":                    func() { sqllock.Namespace("a").Keyed(nil) },
		"a Namespace must not":                    func() { sqllock.Namespace("").Keyed([]byte("s")) },
		"a Namespace must":                        func() { var k sqllock.KeyedNamespace; k.Key("x") },
	} {
		wantPanic(t, want, "sqllock: "+want, call)
	}
}
