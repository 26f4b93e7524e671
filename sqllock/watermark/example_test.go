package watermark_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// Two instances start a nightly job, and their clocks differ. The second comes
// long after the first has released the lock, and finds the watermark of the
// night.
func ExampleAdvance() {
	ctx := context.Background()
	db, done := dbtest.ExampleDatabase()
	defer done()
	for _, statement := range watermark.Schema(sqllock.PostgreSQL) { // once, in a migration
		if _, err := db.ExecContext(ctx, statement); err != nil {
			log.Fatal(err)
		}
	}
	locks, err := sqllock.Open(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	key := sqllock.Namespace("job").Key("report")
	run := func(tick time.Time, report func(context.Context) error) error {
		return sqllock.Do(ctx, locks, key, func(ctx context.Context) error {
			if err := advance(ctx, db, key, tick); err != nil {
				return err
			}
			return report(ctx)
		})
	}
	night := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC) // of the schedule, not of the instance's start
	report := func(context.Context) error { fmt.Println("the report is sent"); return nil }
	fmt.Println("one instance:", run(night, report))
	fmt.Println("another, some seconds later:", run(night, report))
	fmt.Println("the next night:", run(night.AddDate(0, 0, 1), report))
	// Output:
	// the report is sent
	// one instance: <nil>
	// another, some seconds later: watermark: the mark has been passed already
	// the report is sent
	// the next night: <nil>
}

// advance commits the watermark before the work, so the work is done at most
// once.
func advance(ctx context.Context, db *sql.DB, key sqllock.Key, tick time.Time) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := watermark.Advance(ctx, tx, key, tick.UnixMilli()); err != nil {
		return err
	}
	return tx.Commit()
}

// A lock alone is not enough. It is free again when an instance whose clock is
// behind comes to the same tick.
func ExampleAdvance_incorrect() {
	locks, done := dbtest.ExampleSession()
	defer done()
	key := sqllock.Namespace("job").Key("report")
	for range 2 { // two instances, one after the other
		err := sqllock.Do(context.Background(), locks, key, func(context.Context) error {
			fmt.Println("the report is sent")
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// the report is sent
	// the report is sent
}

// A reader of a stream continues where it stopped. The watermark is committed
// together with the work, so an entry is neither left out nor done twice.
func ExampleGet() {
	ctx := context.Background()
	db, done := dbtest.ExampleDatabase()
	defer done()
	for _, statement := range watermark.Schema(sqllock.PostgreSQL) { // once, in a migration
		if _, err := db.ExecContext(ctx, statement); err != nil {
			log.Fatal(err)
		}
	}
	key := sqllock.Namespace("stream").Key("orders")
	entries := []string{"order", "payment", "refund"} // the offsets are 1, 2, 3
	for range 2 {                                     // it starts, stops after two entries, and starts again
		at, ok, err := watermark.Get(ctx, db, key)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("so far:", at, ok)
		for i, entry := range entries[at:min(at+2, 3)] {
			if err := follow(ctx, db, key, at+int64(i)+1, entry); err != nil {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// so far: 0 false
	// done: order
	// done: payment
	// so far: 2 true
	// done: refund
}

// follow processes entry and advances the watermark to its offset, in one
// transaction.
func follow(ctx context.Context, db *sql.DB, key sqllock.Key, offset int64, entry string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := watermark.Advance(ctx, tx, key, offset); err != nil {
		return err
	}
	fmt.Println("done:", entry) // in a real program: statements of tx
	return tx.Commit()
}
