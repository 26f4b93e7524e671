package databases

import (
	"maps"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// An execMode is a way in which a driver sends statements.
type execMode struct {
	driver    string
	parameter string // of the connection string
	fails     outcome
}

var (
	prepares = outcome{"WithLeaseTable": "set default_query_exec_mode=exec"}

	// pgx itself sends no query that has arguments or returns rows.
	noCache = outcome{
		"Session": "set default_query_exec_mode=exec", "WithRegistry": "set default_query_exec_mode=exec", "WithLeaseTable": "set default_query_exec_mode=exec",
		"Fence": "set default_query_exec_mode=exec", "watermark": "set default_query_exec_mode=exec",
		"idempotency": "the database is not set up",
	}

	// behind a transaction pooler, in every mode.
	pooled = outcome{
		"Session": "a transaction pooler", "WithRegistry": "a transaction pooler", "Fence": "a transaction pooler",
	}
)

var execModes = []execMode{
	{driver: "pgx", parameter: "default_query_exec_mode=cache_statement", fails: prepares},
	{driver: "pgx", parameter: "default_query_exec_mode=cache_describe"},
	{driver: "pgx", parameter: "default_query_exec_mode=describe_exec", fails: prepares},
	{driver: "pgx", parameter: "default_query_exec_mode=exec"},
	{driver: "pgx", parameter: "default_query_exec_mode=simple_protocol"},
	{driver: "pgx", parameter: "statement_cache_capacity=0", fails: noCache},
	{driver: "pgx", parameter: "statement_cache_capacity=0&description_cache_capacity=0&default_query_exec_mode=cache_describe", fails: noCache},
	{driver: "postgres", parameter: "binary_parameters=no"},
	{driver: "postgres", parameter: "binary_parameters=yes"},
	{driver: "postgres", parameter: "disable_prepared_binary_result=yes"},
}

// A Session works in every way in which a driver sends statements. A lease table
// rejects those that prepare.
func TestLongExecModes(t *testing.T) {
	t.Parallel()
	for _, m := range execModes {
		t.Run(m.driver+"/"+m.parameter, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, pgtest.Database(t))
			s.driver, s.dsn, s.inMode = m.driver, s.dsn+"&"+m.parameter, true
			s.tryAll(t, m.fails, nil)
		})
	}
}

// Through a transaction pooler, a Session is refused in every mode. What works
// there works as without a pooler.
func TestLongExecModesThroughPgBouncer(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	bouncer, err := cluster.PgBouncer("transaction", 5)
	must(t, err)
	for _, m := range execModes {
		t.Run(m.driver+"/"+m.parameter, func(t *testing.T) {
			t.Parallel()
			plain, err := cluster.CreateDatabase(t.Context())
			must(t, err)
			s := newStage(t, plain)
			s.driver, s.dsn, s.inMode = m.driver, bouncer.DSN(s.base)+"&"+m.parameter, true
			s.without = "OnConn" // which proves nothing, as its comment says
			fails := maps.Clone(m.fails)
			if fails == nil {
				fails = outcome{}
			}
			maps.Copy(fails, pooled)
			s.tryAll(t, fails, nil)
		})
	}
}
