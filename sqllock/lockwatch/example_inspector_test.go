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

// Which process holds the key, and which one waits for it?
func ExampleNewView() {
	key := sqllock.Namespace("export").Key("ada")
	seen := &lockwatch.Snapshot{ // as Inspect gives it
		Holders: []lockwatch.Holder{{Key: key, Process: lockwatch.Process{PID: 101, Application: "shop latchkey", Address: "10.0.0.7"},
			Registration: &lockwatch.Registration{Namespace: "export", Name: "export of ada", Holder: "web-1/7"}}},
		Waiters: []lockwatch.Waiter{{Key: key, Process: lockwatch.Process{PID: 102, Address: "10.0.0.8"},
			Poll: &lockwatch.Poll{Session: 5, Callers: 2, Holder: "web-2/7"}}},
	}
	view := lockwatch.NewView(seen).OnlyID("export", "ada") // every place of a limit
	for _, row := range view.Locks(0, view.Held) {
		fmt.Printf("%s is held by %v\n", row.Label, row.Client)
	}
	for _, row := range view.Waiting(view.Waits) {
		fmt.Printf("%d callers wait in %v\n", row.Callers, row.Client)
	}
	// Output:
	// export of ada is held by process 101 (web-1/7, shop latchkey, 10.0.0.7)
	// 2 callers wait in process 102 (web-2/7, 10.0.0.8)
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
