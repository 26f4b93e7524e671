package lockwatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/choose"
	"github.com/latchkey-go/latchkey/internal/dialect/leasetable"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A look is what a database shows at one moment.
type look struct {
	*Snapshot
	registry postgres.Registry // of PostgreSQL; else zero
}

// lookAt looks at the locks of db's database, on one connection. It finds the
// kind of the database as sqllock.Open does.
func lookAt(ctx context.Context, db *sql.DB, schema string) (look, error) {
	if _, own := db.Driver().(dialect.Driver); own {
		return look{}, errNothingToSee
	}
	conn, err := postgres.Borrow(ctx, db)
	if err != nil {
		return look{}, dialect.Fail(err)
	}
	defer conn.Close()
	d, err := choose.OnConn(ctx, conn, false)
	if isUnknown(err) { // perhaps it has a lease table
		d, err = choose.OnConn(ctx, conn, true)
	}
	if isUnknown(err) {
		return look{}, errNothingToSee
	}
	if err != nil {
		return look{}, err
	}
	switch d.(type) {
	case postgres.Dialect:
		i, err := postgres.Inspect(ctx, conn, schema)
		if err != nil {
			return look{}, err
		}
		return look{snapshotOf(i), i.Registry}, nil
	case leasetable.PostgreSQL:
		i, err := leasetable.InspectPostgreSQL(ctx, conn)
		if err == nil && i.Missing {
			err = errNothingToSee
		}
		return leaseLook(sqllock.PostgreSQL, i, err)
	case leasetable.SQLite:
		i, err := leasetable.InspectSQLite(ctx, conn)
		return leaseLook(sqllock.SQLite, i, err)
	case mysql.Dialect:
		i, err := mysql.Inspect(ctx, conn)
		if err != nil {
			return look{}, err
		}
		return look{Snapshot: mysqlSnapshot(i)}, nil
	}
	return look{}, errNothingToSee
}

func leaseLook(d sqllock.Dialect, i *leasetable.Inspection, err error) (look, error) {
	if err != nil {
		return look{}, err
	}
	return look{Snapshot: leaseSnapshot(d, i)}, nil
}

// isUnknown reports whether err, of package choose, is about a system that none
// of the dialects is for.
func isUnknown(err error) bool {
	var failure *dialect.Failure
	return errors.As(err, &failure) && failure.Kind == dialect.NotExclusive
}

var errNothingToSee = fmt.Errorf("this database is none that latchkey has locks in, or it has no lease tables: %w", errors.ErrUnsupported)
