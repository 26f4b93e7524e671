package lockwatch_test

import (
	"context"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A program that shows the locks again and again, with what is wrong with them.
func ExampleInspector() {
	ctx := context.Background()
	db, done := dbtest.ExampleDatabase()
	defer done()

	inspector, diagnosis := lockwatch.NewInspector(db), lockwatch.NewDiagnosis()
	for range 2 { // each second, in a program of yours
		seen, err := inspector.Inspect(ctx)
		if err != nil {
			fmt.Println(err) // the database may be away: go on
			continue
		}
		begun, over := diagnosis.Look(seen)
		fmt.Println(len(seen.Holders), "held,", len(begun), "begun,", len(over), "over")
	}
	// Output:
	// 0 held, 0 begun, 0 over
	// 0 held, 0 begun, 0 over
}

// An operator has seen a holder that must go.
func ExampleTerminate() {
	ctx := context.Background()
	db, done := dbtest.ExampleDatabase()
	defer done()
	stuck, err := db.Conn(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stuck.Close()
	if _, err := stuck.ExecContext(ctx, "SELECT pg_advisory_lock(7)"); err != nil {
		fmt.Println(err)
		return
	}

	seen, err := lockwatch.Inspect(ctx, db)
	if err != nil {
		fmt.Println(err)
		return
	}
	holders, _ := seen.Find(sqllock.ID(7))
	fmt.Println(lockwatch.Terminate(ctx, db, holders[0].Process))
	// Output: true <nil>
}
