package sqllock_test

import (
	"fmt"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Two namespaces never share a key.
func ExampleNamespace_Key() {
	export, payout := sqllock.Namespace("export"), sqllock.Namespace("payout")
	fmt.Println(export.Key("user-1") == payout.Key("user-1"))
	fmt.Println(export.Key("user-1").Int64()) // in psql: SELECT pg_try_advisory_lock(…)
	// Output:
	// false
	// -1637517681989069423
}

// Slots are the keys of a name that several callers may hold at once. Slot 0 is
// the name's own key.
func ExampleNamespace_SlotKey() {
	ns := sqllock.Namespace("export")
	fmt.Println(ns.SlotKey("user-1", 0) == ns.Key("user-1"))
	fmt.Println(ns.SlotKey("user-1", 1) == ns.Key("user-1"))
	// Output:
	// true
	// false
}

// Pair returns classid and objid, as a row of pg_locks shows them, and reports
// which of the two key spaces the key is in.
func ExampleKey_Pair() {
	const invoices = 3
	for _, key := range []sqllock.Key{sqllock.Pair(invoices, 42), sqllock.ID(42)} {
		if class, object, ok := key.Pair(); ok {
			fmt.Println("class", class, "object", object)
		} else {
			fmt.Println("number", key.Int64())
		}
	}
	// Output:
	// class 3 object 42
	// number 42
}
