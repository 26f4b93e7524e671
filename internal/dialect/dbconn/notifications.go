package dbconn

import (
	"context"
	"database/sql"
	"reflect"
)

// Notifications returns a function that drops the notifications (NOTIFY) which
// the driver of conn has received and keeps for a reader. A session that
// listens and never calls it has the memory of the process grow without end.
//
// The function must be called while no statement is under way. It sends nothing
// and does not wait. It is nil where the driver keeps no notifications.
//
// known is false for a driver other than pgx v5 and lib/pq: it may keep them
// for ever.
func Notifications(conn *sql.Conn) (drop func(), known bool) {
	_ = conn.Raw(func(c any) error {
		defer func() {
			if recover() != nil { // a driver that looks like one we know, and is not
				drop, known = nil, false
			}
		}()
		c = unwrap(c)
		if isOf(c, libpq) { // it gives them to a handler, if the user has set one
			known = true
			return nil
		}
		if v := pgxConn(c); v.IsValid() {
			drop, known = pgxNotifications(v.MethodByName("WaitForNotification"))
		}
		return nil
	})
	return drop, known
}

// pgxNotifications returns the function of Notifications for the method
// WaitForNotification of a *pgx.Conn. With a context that has ended, that
// returns one notification that is there already, or an error at once.
func pgxNotifications(read reflect.Value) (drop func(), known bool) {
	if !read.IsValid() || read.Type().NumIn() != 1 || read.Type().NumOut() != 2 {
		return nil, false
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	args := []reflect.Value{reflect.ValueOf(over)}
	return func() {
		for read.Call(args)[1].IsNil() {
			continue
		}
	}, true
}
