package sqllock_test

import (
	"fmt"

	"github.com/latchkey-go/latchkey/sqllock"
)

func ExampleNamespace_Key() {
	export, payout := sqllock.Namespace("export"), sqllock.Namespace("payout")
	fmt.Println(export.Key("user-1") == payout.Key("user-1"))
	fmt.Println(export.Key("user-1").Int64()) // in psql: SELECT pg_try_advisory_lock(…)
	// Output:
	// false
	// -1637517681989069423
}

func ExampleNamespace_SlotKey() {
	ns := sqllock.Namespace("export")
	fmt.Println(ns.SlotKey("user-1", 0) == ns.Key("user-1"))
	fmt.Println(ns.SlotKey("user-1", 1) == ns.Key("user-1"))
	// Output:
	// true
	// false
}

// For ids that strangers choose: without the secret nobody can find one that
// collides with somebody else's.
func ExampleNamespace_Keyed() {
	hooks := sqllock.Namespace("webhook").Keyed([]byte("the fleet's secret"))
	fmt.Println(hooks.Key("evt_1") == sqllock.Namespace("webhook").Key("evt_1"))
	// Output: false
}

func ExampleID() {
	const migrations = 4711 // a number of one's own
	fmt.Println(sqllock.ID(migrations).Int64())
	// Output: 4711
}

// What a row of pg_locks says: classid and objid, and which of the two key spaces.
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

func ExamplePair() {
	const invoices = 3 // a class of one's own, and a row's number in it
	fmt.Println(sqllock.Pair(invoices, 42) == sqllock.ID(sqllock.Pair(invoices, 42).Int64()))
	// Output: false
}
