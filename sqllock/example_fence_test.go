package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A payout behind the fence. The database rejects it if this process froze and
// lost the lock, and another holder has paid out since.
func ExampleFence() {
	ctx := context.Background()
	db, done := exampleDatabase()
	defer done()
	for _, ddl := range append(sqllock.FenceSchema(sqllock.PostgreSQL), "CREATE TABLE account AS SELECT 100 AS balance") { // once, in a migration
		if _, err := db.ExecContext(ctx, ddl); err != nil {
			log.Fatal(err)
		}
	}
	locks, err := sqllock.Open(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	payOut := func(lock *sqllock.Lock) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := sqllock.Fence(ctx, tx, lock); err != nil { // before the first read
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 30"); err != nil {
			return err
		}
		return tx.Commit()
	}
	key := sqllock.Namespace("payout").Key("user-1")
	lock, err := locks.TryLock(ctx, key)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(payOut(lock))

	// Another holder passes the fence while this process is frozen.
	if _, err := db.ExecContext(ctx, "UPDATE latchkey_fence SET lsn = lsn + 1"); err != nil {
		log.Fatal(err)
	}
	err = payOut(lock)
	fmt.Println(errors.Is(err, sqllock.ErrFenced), lock.Unlock())
	fmt.Println("balance:", balance(db))
	// Output:
	// <nil>
	// true <nil>
	// balance: 70
}

// What goes wrong if the fence comes after a read: the transaction may have
// read a value from before the last holder's write.
func ExampleFence_incorrect() {
	ctx := context.Background()
	db, done := exampleDatabase()
	defer done()
	for _, ddl := range append(sqllock.FenceSchema(sqllock.PostgreSQL), "CREATE TABLE account AS SELECT 100 AS balance") {
		if _, err := db.ExecContext(ctx, ddl); err != nil {
			log.Fatal(err)
		}
	}
	locks, err := sqllock.Open(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	lock, err := locks.TryLock(ctx, sqllock.Namespace("payout").Key("user-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = lock.Unlock() }()

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	before := balance(tx)                                                                       // read
	if _, err := db.ExecContext(ctx, "UPDATE account SET balance = balance - 30"); err != nil { // another holder writes
		log.Fatal(err)
	}
	if err := sqllock.Fence(ctx, tx, lock); err != nil { // then fenced
		log.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = $1", before-30); err != nil {
		log.Fatal(err)
	}
	fmt.Println(tx.Commit())
	fmt.Println("paid out 60, balance:", balance(db))
	// Output:
	// <nil>
	// paid out 60, balance: 70
}

// A store outside the database rejects a holder that froze, lost the lock and
// has not noticed: the store has seen the greater token of a later holder.
func ExampleLock_Token() {
	locks, done := exampleSession()
	defer done()
	ctx, key := context.Background(), sqllock.Namespace("report").Key("2026-11")
	greatest := "" // in the store, for this key
	write := func(token string) string {
		if token < greatest {
			return "rejected"
		}
		greatest = token
		return "written"
	}

	var tokens []string // of two holders, one after the other
	for range 2 {
		err := sqllock.Do(ctx, locks, key, func(ctx context.Context) error {
			lock, _ := sqllock.FromContext(ctx)
			token, err := lock.Token(ctx)
			tokens = append(tokens, token)
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(write(tokens[1]))
	fmt.Println(write(tokens[0])) // sent late
	// Output:
	// written
	// rejected
}

func balance(q interface {
	QueryRow(query string, args ...any) *sql.Row
}) (n int) {
	if err := q.QueryRow("SELECT balance FROM account").Scan(&n); err != nil {
		log.Fatal(err)
	}
	return n
}
