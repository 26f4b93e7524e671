package lockdoctor_test

import (
	"context"
	"fmt"
	"log"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

// A command, a page or a person asks the doctor. A readiness check does not: the
// doctor takes locks and needs two connections. See sqllock.Session.Stats.
func ExampleCheck() {
	ctx := context.Background()
	db, done := dbtest.ExampleDatabase()
	defer done()
	locks, err := sqllock.Open(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	if _, err := locks.TryLock(ctx, sqllock.Namespace("export").Key("user-1")); err != nil {
		log.Fatal(err)
	}

	report, err := lockdoctor.Check(ctx, db, lockdoctor.WithSession(locks), lockdoctor.WithFleet(20, 2000))
	if err != nil {
		log.Fatal(err) // ctx has ended
	}
	proof, _ := report.Find("exclusion")
	fmt.Println(proof.State, proof.Reason)
	fmt.Println("exit code", report.ExitCode())
	// fmt.Print(report) prints every check.
	// Output:
	// ok locks on one connection exclude another one
	// exit code 0
}

// The doctor finds what is wrong, and says what to change.
func ExampleReport_String() {
	db, done := dbtest.ExampleDatabase()
	defer done()
	db.SetMaxOpenConns(1) // a mistake: a Session needs two for a moment

	report, err := lockdoctor.Check(context.Background(), db)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range report.Checks {
		if c.State == lockdoctor.Error {
			fmt.Println(&lockdoctor.Report{Checks: []lockdoctor.Result{c}})
		}
	}
	// Output:
	// error    pool  the pool may open one connection only, and a Session needs a second one for a moment to prove that locks exclude
	//                Call db.SetMaxOpenConns(5) for the pool of the locks.
	//
	// error: 0 ok, 0 skipped, 0 warning, 1 error
}
