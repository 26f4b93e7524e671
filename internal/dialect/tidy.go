package dialect

import (
	"context"
	"database/sql"
	"reflect"
)

// tidy ends a transaction that the last user of a pooled connection has left
// open, by db.Exec("BEGIN") for example. In such a transaction nothing of ours
// would be committed, and the server would not end a silent session.
//
// It costs a round trip only where the driver does not say whether there is one.
func tidy(ctx context.Context, conn *sql.Conn) error {
	statement := "BEGIN; ROLLBACK" // ROLLBACK alone would be a warning in the server's log
	switch idle, known := isIdle(conn); {
	case idle:
		return nil
	case known:
		statement = "ROLLBACK"
	}
	_, err := conn.ExecContext(ctx, statement)
	if SQLState(err) != "" { // the transaction has failed, and allows no BEGIN
		_, err = conn.ExecContext(ctx, "ROLLBACK")
	}
	return err
}

// isIdle reports whether conn is in no transaction, by the status that comes
// with each reply of the server, where the driver shows it.
func isIdle(conn *sql.Conn) (idle, known bool) {
	_ = conn.Raw(func(c any) error {
		defer func() {
			if recover() != nil { // a driver that looks like one we know, and is not
				idle, known = false, false
			}
		}()
		c = unwrap(c)
		const ready = 'I'
		if v := pqField(c, "txnStatus"); v.IsValid() && v.CanUint() {
			idle, known = v.Uint() == ready, true
			return nil
		}
		if v := pgConn(c); v.IsValid() {
			if conn, ok := reflect.TypeAssert[interface{ TxStatus() byte }](v); ok {
				idle, known = conn.TxStatus() == ready, true
			}
		}
		return nil
	})
	return idle, known
}
