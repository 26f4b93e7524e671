package sqllock_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// shadowFunctions creates a schema with a function for each one of PostgreSQL,
// with the same name and arguments. Each of these functions fails. There is an
// empty table for each view and table of the catalog.
const shadowFunctions = `CREATE SCHEMA shadow;
DO $$ DECLARE f record; BEGIN
	FOR f IN SELECT proname AS name, pg_get_function_identity_arguments(oid) AS arguments, pg_get_function_result(oid) AS result
		FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind IN ('f', 'a') AND NOT prorettype::regtype::text ~ 'trigger|internal|handler'
	LOOP BEGIN
		EXECUTE format('CREATE FUNCTION shadow.%I(%s) RETURNS %s LANGUAGE plpgsql AS ''BEGIN RAISE EXCEPTION ''''shadowed''''; END''', f.name, f.arguments, f.result);
	EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP;
	FOR f IN SELECT relname AS name FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v')
	LOOP EXECUTE format('CREATE TABLE shadow.%I (n int)', f.name); END LOOP;
END $$`

// shadowOperators adds an operator for each one of PostgreSQL. It calls one of
// those functions.
const shadowOperators = `DO $$ DECLARE o record; BEGIN
	FOR o IN SELECT oprname AS name, oprleft::regtype AS l, oprright::regtype AS r, p.proname AS function
		FROM pg_operator JOIN pg_proc AS p ON p.oid = oprcode WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprleft <> 0
	LOOP BEGIN
		EXECUTE format('CREATE OPERATOR shadow.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = shadow.%I)', o.name, o.l, o.r, o.function);
	EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP;
END $$`

// betterOperators creates operators in the schema public that PostgreSQL does
// not have, for types that it has. They fail. PostgreSQL would choose one of
// them wherever an expression needs a conversion to fit an operator of its own.
const betterOperators = `DO $$ DECLARE o text; l regtype; r regtype; BEGIN
	FOREACH l IN ARRAY '{int2,int4,int8,numeric,float8,text,name,oid,"char",pg_lsn,timestamptz,interval,bool,inet}'::regtype[] LOOP
	FOREACH r IN ARRAY '{int2,int4,int8,numeric,float8,text,name,oid,"char",pg_lsn,timestamptz,interval,bool,inet}'::regtype[] LOOP
		EXECUTE format('CREATE FUNCTION public.better(%s, %s) RETURNS bool LANGUAGE plpgsql AS ''BEGIN RAISE EXCEPTION ''''better''''; END''', l, r);
		FOREACH o IN ARRAY '{+,-,*,/,%,&,|,<<,>>,=,<>,<,>,<=,>=,||,~~,!~~}'::text[] LOOP
			CONTINUE WHEN EXISTS (SELECT FROM pg_operator WHERE oprname = o AND oprleft = l AND oprright = r);
			EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.better)', o, l, r);
		END LOOP;
	END LOOP; END LOOP;
END $$`

// A role that may create operators in a schema of the search_path could have
// its code run by sqllock's statements. It would only need an operator that
// fits the types better than PostgreSQL's own.
func TestLongBetterOperators(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	direct := open(t, "pgx", dsn)
	for _, statements := range [][]string{
		sqllock.FenceSchema(sqllock.PostgreSQL), watermark.Schema(sqllock.PostgreSQL),
		lockwatch.Schema(sqllock.PostgreSQL), {betterOperators},
	} {
		create(t, direct, statements)
	}
	if _, err := direct.Exec("SELECT 1.5 * 2"); err == nil {
		t.Fatal("no operator fits better")
	}
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) { withShadowedFunctions(t, driver, dsn) })
	}
	// A lease table that counts its tokens has more statements of this kind.
	execute(t, direct, "CREATE FUNCTION aurora_version() RETURNS text LANGUAGE sql AS $$ SELECT '15.4.0' $$")
	lock := take(t, session(t, "postgres", dsn, sqllock.WithLeaseTable()), 7, 1)[0]
	if err := sqllock.Fence(t.Context(), transaction(t, direct), lock); err != nil {
		t.Errorf("Fence with a lease table that counts: %v", err)
	}
}

// A schema before pg_catalog in the search_path changes nothing. sqllock never
// uses its functions, operators and tables in place of PostgreSQL's own.
func TestShadowedCatalog(t *testing.T) {
	t.Parallel()
	const path = "&search_path=shadow,pg_catalog,public"
	dsn := pgtest.Database(t)
	direct := open(t, "pgx", dsn)
	for _, statements := range [][]string{
		sqllock.Schema(sqllock.PostgreSQL), sqllock.FenceSchema(sqllock.PostgreSQL), watermark.Schema(sqllock.PostgreSQL),
		lockwatch.Schema(sqllock.PostgreSQL), {shadowFunctions},
	} {
		create(t, direct, statements)
	}
	for _, driver := range pgtest.Drivers() {
		t.Run(driver+"/functions", func(t *testing.T) {
			withShadowedFunctions(t, driver, dsn+path)
		})
	}
	execute(t, direct, shadowOperators)
	for _, driver := range pgtest.Drivers() {
		t.Run(driver+"/operators", func(t *testing.T) {
			db := open(t, driver, dsn+path)
			if _, err := db.Exec("SELECT 1 WHERE 1 = 1"); err == nil {
				t.Fatal("the operators are not shadowed")
			}
			locksExclude(t, db, sqllock.WithDialect(sqllock.PostgreSQL)) // so that Open does not use LIKE to find out which database this is
		})
	}
}

// locksExclude acquires each kind of lock in db, and checks that it excludes
// others.
func locksExclude(t *testing.T, db *sql.DB, opts ...sqllock.Option) {
	t.Helper()
	s := sessionOn(t, db, opts...)
	take(t, s, 0, 1)
	takeKeyed(t, s)
	if ok, err := tryTx(t, db, sqllock.ID(0)); ok || err != nil {
		t.Errorf("TryTx of a held key: %v, %v; want false", ok, err)
	}
	tx := transaction(t, db)
	if err := sqllock.LockTx(t.Context(), tx, sqllock.ID(1), time.Second); err != nil {
		t.Errorf("LockTx: %v", err)
	}
	for name, l := range map[string]sqllock.Locker{
		"OnConn": sqllock.OnConn(connection(t, db)),
		"PerTx":  sqllock.PerTx(db, sqllock.WithLease(time.Minute)),
	} {
		if _, err := l.TryLock(t.Context(), sqllock.ID(0)); err != sqllock.ErrHeld {
			t.Errorf("%s: TryLock of a held key: %v, want ErrHeld", name, err)
		}
		lock, err := l.TryLock(t.Context(), sqllock.ID(2))
		if err != nil {
			t.Errorf("%s: TryLock: %v", name, err)
		}
		if err := lock.Unlock(); err != nil {
			t.Errorf("%s: Unlock: %v", name, err)
		}
	}
}

func withShadowedFunctions(t *testing.T, driver, dsn string) {
	db := open(t, driver, dsn)
	locksExclude(t, db)

	s := sessionOn(t, db, sqllock.WithRegistry(""), sqllock.WithHeartbeat(20*time.Millisecond))
	lock := take(t, s, 10, 1)[0] // the server may still be freeing the keys of the previous Session
	lockertest.Eventually(t, "Inspect shows a registered lock", func() bool {
		snapshot, err := lockwatch.Inspect(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(snapshot.Holders, func(h lockwatch.Holder) bool { return h.Registration != nil })
	})
	execute(t, db, `INSERT INTO latchkey_heartbeats SELECT 1, (1 << 30), pg_catalog.now(), 0, 0, '', NULL, 'host/1', t, t, t
		FROM (SELECT pg_catalog.now() - interval '1 hour' AS t) AS t`)
	watch(t, db, nil)
	lockertest.Eventually(t, "Watch removes a dead row", func() bool {
		return number(t, db, "SELECT pg_catalog.count(*) FROM latchkey_heartbeats WHERE process = 1") == 0
	})
	tx := transaction(t, db)
	if err := sqllock.Fence(t.Context(), tx, lock); err != nil {
		t.Errorf("Fence: %v", err)
	}
	if err := watermark.Advance(t.Context(), tx, sqllock.ID(5), 1); err != nil {
		t.Errorf("Advance: %v", err)
	}
	_ = tx.Rollback()

	if driver == "pgx" {
		dsn += "&default_query_exec_mode=exec"
	}
	table := session(t, driver, dsn, sqllock.WithLeaseTable())
	rival := session(t, driver, dsn, sqllock.WithLeaseTable())
	lock = take(t, table, 0, 1)[0]
	takeKeyed(t, table)
	if _, err := rival.TryAny(context.Background(), sqllock.ID(0)); err != sqllock.ErrHeld {
		t.Errorf("TryAny of a held key in a lease table: %v, want ErrHeld", err)
	}
	tx = transaction(t, db)
	if err := sqllock.Fence(t.Context(), tx, lock); err != nil {
		t.Errorf("Fence with a lease table: %v", err)
	}
	unlock(t, lock)
}
