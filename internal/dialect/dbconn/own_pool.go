package dbconn

import "database/sql"

// IsOfPool reports whether the driver of conn has a pool of its own, whose size
// the *sql.DB does not show. stdlib.OpenDBFromPool of pgx makes such a *sql.DB.
// Its connections have no configuration of their own.
func IsOfPool(conn *sql.Conn) bool {
	of, _ := inside(conn, func(c any) (bool, bool) {
		config := fieldOf(c, pgxStdlib, "connConfig")
		return config.IsValid() && config.IsZero(), true
	})
	return of
}
