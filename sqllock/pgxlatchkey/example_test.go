package pgxlatchkey_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/pgxlatchkey"
)

// examplePool makes a database for an example.
func examplePool() (pool *pgxpool.Pool, done func()) {
	dsn, drop, err := pgtest.Temporary(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	pool, err = pgxpool.New(context.Background(), dsn)
	if err != nil {
		log.Fatal(err)
	}
	return pool, func() {
		pool.Close()
		_ = drop()
	}
}

// A lock that ends with the caller's transaction.
func ExampleTx() {
	ctx := context.Background()
	pool, done := examplePool()
	defer done()
	key := sqllock.Namespace("export").Key("user-1")

	first, _ := pool.Begin(ctx)
	second, _ := pool.Begin(ctx)
	defer second.Rollback(ctx)
	fmt.Println(sqllock.TryTx(ctx, pgxlatchkey.Tx(first), key))
	fmt.Println(sqllock.TryTx(ctx, pgxlatchkey.Tx(second), key))
	_ = first.Commit(ctx)
	fmt.Println(sqllock.TryTx(ctx, pgxlatchkey.Tx(second), key))
	// Output:
	// <nil>
	// sqllock: key is held
	// <nil>
}

// The work of a lock uses the transaction that holds it.
func ExamplePerTx() {
	ctx := context.Background()
	pool, done := examplePool()
	defer done()
	locks := pgxlatchkey.PerTx(pool)
	err := sqllock.Do(ctx, locks, sqllock.Namespace("export").Key("user-1"), func(ctx context.Context) error {
		tx, _ := pgxlatchkey.TxFromContext(ctx)
		if _, err := tx.Exec(ctx, "CREATE TABLE done (id int)"); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	fmt.Println(err)
	// Output: <nil>
}
