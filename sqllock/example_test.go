package sqllock_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/latchkey-go/latchkey/sqllock"
)

// exampleSession is what a service does at its start, less the handling of
// errors.
func exampleSession(dsn string) (locks *sqllock.Session, closeLocks func()) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		log.Fatal(err)
	}
	db.SetMaxOpenConns(3) // a small pool of its own
	locks, err = sqllock.Open(context.Background(), db)
	if err != nil {
		log.Fatal(err)
	}
	return locks, func() {
		_ = locks.Close()
		_ = db.Close()
	}
}
