package sqllock_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// An Observer is for what should be known at once. Figures for metrics come from
// Stats, and need none.
func ExampleWithObserver() {
	db, done := exampleDatabase()
	defer done()
	locks, err := sqllock.Open(context.Background(), db, sqllock.WithObserver(sqllock.Observer{
		Connected: func() { fmt.Println("connected") },
		Lost:      func(cause string, locks int) { fmt.Println("lost", locks, "locks by", cause) },
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close() // no loss
	// Output: connected
}

// A process is ready while it has a connection for locks, or has closed it
// while idle. Stats asks no database, so the check is cheap, and it answers
// while the database is frozen.
func ExampleSession_Stats_readiness() {
	locks, done := exampleSession()
	defer done()
	ready := func(w http.ResponseWriter, _ *http.Request) {
		if stats := locks.Stats(); stats.Connections == 0 && !stats.IdleClosed {
			http.Error(w, "no connection for locks", http.StatusServiceUnavailable)
		}
	}
	ask := func() int {
		w := httptest.NewRecorder()
		ready(w, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
		return w.Code
	}
	fmt.Println(ask())
	_ = locks.Close()
	fmt.Println(ask())
	// Output:
	// 200
	// 503
}

// The registry tells how long another process has held a key. The first call has
// it read in the background.
func ExampleSession_HeldFor() {
	db, done := exampleDatabase()
	defer done()
	for _, statement := range lockwatch.Schema(sqllock.PostgreSQL) { // a migration does this
		if _, err := db.Exec(statement); err != nil {
			log.Fatal(err)
		}
	}
	open := func() *sqllock.Session {
		s, err := sqllock.Open(context.Background(), db, sqllock.WithRegistry(""), sqllock.WithHeartbeat(20*time.Millisecond))
		if err != nil {
			log.Fatal(err)
		}
		return s
	}
	holder, rejected := open(), open() // of two processes
	defer holder.Close()
	defer rejected.Close()
	key := sqllock.Namespace("report").Key("2026-11")
	if _, err := holder.TryLock(context.Background(), key); err != nil {
		log.Fatal(err)
	}
	_, ok := rejected.HeldFor(key)
	fmt.Println("known at once:", ok)
	for !ok {
		time.Sleep(10 * time.Millisecond)
		_, ok = rejected.HeldFor(key)
	}
	fmt.Println("known later:", ok)
	// Output:
	// known at once: false
	// known later: true
}

// The locks of each connection, as the database has them: key.Int64() is the
// number in pg_locks.
func ExampleSession_Connections() {
	locks, done := exampleSession()
	defer done()
	if _, err := locks.TryLock(context.Background(), sqllock.ID(7)); err != nil {
		log.Fatal(err)
	}
	for _, c := range locks.Connections() {
		fmt.Println(c.PID != 0, c.LeaseRemaining > time.Second, len(c.Held), c.Held[0].Int64())
	}
	// Output: true true 1 7
}
