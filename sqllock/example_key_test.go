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

// Keyed is for ids that strangers choose. Without the secret they cannot search
// for an id whose key collides with another one.
func ExampleNamespace_Keyed() {
	hooks := sqllock.Namespace("webhook").Keyed([]byte("the fleet's secret"))
	fmt.Println(hooks.Key("evt_1") == sqllock.Namespace("webhook").Key("evt_1"))
	// Output: false
}

// A number that the program has chosen itself.
func ExampleID() {
	const migrations = 4711 // chosen once for the whole database
	fmt.Println(sqllock.ID(migrations).Int64())
	// Output: 4711
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

// Pairs and numbers are separate key spaces: a pair never equals an ID.
func ExamplePair() {
	const invoices = 3 // the class of invoices; 42 is a row's id
	fmt.Println(sqllock.Pair(invoices, 42) == sqllock.ID(sqllock.Pair(invoices, 42).Int64()))
	// Output: false
}
