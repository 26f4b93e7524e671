package sqllock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/sqllock"
)

// These Examples are the Go code of docs/keys.md. TestKeysPageGo checks that
// every line of that code is in this file.

// The number that psql, Python and Node compute too: docs/keys.md shows how.
func ExampleKey_Int64() {
	fmt.Println(sqllock.Namespace("export").Key("user-1").Int64())
	fmt.Println(sqllock.Namespace("export").SlotKey("user-1", 3).Int64())
	// Output:
	// -1637517681989069423
	// 5792300761127837718
}

// Keys under a secret, for names that strangers choose.
func ExampleKeyedNamespace() {
	webhook := sqllock.Namespace("webhook").Keyed([]byte("the fleet's secret"))
	fmt.Println(webhook.Key("evt_1").Int64())
	fmt.Println(webhook.SlotKey("evt_1", 3).Int64())
	// Output:
	// 291172140318600685
	// -7931338255182828721
}

const (
	classUser  int32 = 1
	classOrder int32 = 2
)

// orderKey is the lock of an order. int32(id) alone would wrap, and lock another order.
func orderKey(id int64) (sqllock.Key, error) {
	if id != int64(int32(id)) {
		return sqllock.Key{}, errors.New("an order's id does not fit into 32 bits any more")
	}
	return sqllock.Pair(classOrder, int32(id)), nil
}

// A row of one of many tables, by type and id: no two rows have the same key.
func ExamplePair_row() {
	order, err := orderKey(42)
	fmt.Println(order == sqllock.Pair(classUser, 42), err)
	_, err = orderKey(42 + 1<<32)
	fmt.Println(err)
	// Output:
	// false <nil>
	// an order's id does not fit into 32 bits any more
}

// What goes wrong without the check: two orders have one key.
func ExamplePair_incorrect() {
	id, other := int64(42), int64(42+1<<32)
	fmt.Println(sqllock.Pair(classOrder, int32(id)) == sqllock.Pair(classOrder, int32(other)))
	// Output: true
}

func compositeKey(class, object int32) sqllock.Key {
	return sqllock.ID(int64(class)<<32 | int64(uint32(object)))
}

// Type and id in one bigint, for a fleet whose other programs do so too.
func ExampleID_composite() {
	key := compositeKey(classOrder, -5)
	fmt.Println(key.Int64(), key.Int64() == sqllock.Pair(classOrder, -5).Int64())
	// Output: 12884901883 true
}

// What goes wrong without the mask: a negative id overwrites the type.
func ExampleID_incorrect() {
	id := int32(-5)
	fmt.Println(int64(classUser)<<32|int64(id), int64(classOrder)<<32|int64(id))
	// Output: -5 -5
}

// While a deployment changes how keys are made, every process acquires the old
// key and the new one, the old one first.
func ExampleDo_twoSchemes() {
	ctx, locks := context.Background(), sqllock.NewMemory()
	oldKey, newKey := sqllock.ID(42), sqllock.Namespace("order").Key("42")
	work := func(context.Context) error {
		_, err := locks.TryLock(ctx, oldKey) // a process from before the deployment
		fmt.Println(errors.Is(err, sqllock.ErrHeld))
		return nil
	}
	err := sqllock.Do(ctx, locks, oldKey, func(ctx context.Context) error {
		return sqllock.Do(ctx, locks, newKey, work) // ctx ends if either lock is lost
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}
