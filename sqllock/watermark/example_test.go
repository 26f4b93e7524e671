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

// A nightly job that two instances start, whose clocks differ: the second comes
// when the first has long given the lock back, and finds the night's mark.
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
			if err := mark(ctx, db, key, tick); err != nil {
				return err
			}
			return report(ctx)
		})
	}
	night := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC) // of the schedule, not the time of day at which an instance starts
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

// mark commits the mark before the work: the work is done at most once.
func mark(ctx context.Context, db *sql.DB, key sqllock.Key, tick time.Time) error {
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

// The lock alone: it is free again when an instance whose clock is behind comes
// to the same tick.
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

// A reader of a stream that goes on where it was: the mark is committed with
// what was done, so an entry is neither left out nor done twice.
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
	for range 2 {                                     // it is started, stops after two entries, and is started again
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

// follow does what entry asks for, and moves the mark to its offset, in one
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
	fmt.Println("done:", entry) // elsewhere: statements of tx
	return tx.Commit()
}
