package databases

import (
	"maps"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A roleSetting is what a role sets in a database, and what a service meets
// then.
type roleSetting struct {
	name    string
	set     []string // NAME = VALUE
	fails   outcome
	pgx     outcome // with pgx, besides fails: lib/pq begins its transactions READ WRITE
	mayFail []string
}

// How a use may end when the server has ended its session or its statement.
// Drivers that write to an ended session learn only that it is gone.
var (
	endedEarly = []string{
		"(idle_session_timeout)", "(idle_in_transaction_session_timeout)",
		"(transaction_timeout)",
		"the connection was closed", "the connection was lost", "connection reset by peer", "broken pipe", "lock was lost",
		"no transaction could be begun", "got no reply", "the transaction was idle for too long", "the connection was idle for too long",
	}
	cancelled = []string{"(statement_timeout)"}
)

var (
	noPath = outcome{
		"WithRegistry":   "create them with lockwatch.Schema, or name their schema",
		"WithLeaseTable": "the search_path names no schema in which the lease tables could be",
		"Fence":          "there is no table latchkey_fence in the search_path",
		"watermark":      "there is no table latchkey_watermarks",
		"idempotency":    "the table latchkey_responses is missing",
	}
	readOnlyTables = outcome{"WithLeaseTable": "set default_transaction_read_only=off for the role"}
	readOnlyTx     = outcome{
		"Fence": "the transaction is read-only", "watermark": "the transaction is read-only", "idempotency": "the transaction is read-only",
	}
)

var roleSettings = []roleSetting{
	{name: "nothing"},
	{name: "statement_timeout 1 ms", set: []string{"statement_timeout = 1"}, mayFail: cancelled},
	{name: "statement_timeout 50 ms", set: []string{"statement_timeout = 50"}, mayFail: cancelled},
	{name: "lock_timeout 1 ms", set: []string{"lock_timeout = 1"}},
	{name: "idle_in_transaction_session_timeout 1 ms", set: []string{"idle_in_transaction_session_timeout = 1"}, mayFail: endedEarly},
	{name: "idle_in_transaction_session_timeout 50 ms", set: []string{"idle_in_transaction_session_timeout = 50"}, mayFail: endedEarly},
	{name: "idle_session_timeout 1 ms", set: []string{"idle_session_timeout = 1"}, mayFail: endedEarly},
	{name: "idle_session_timeout 50 ms", set: []string{"idle_session_timeout = 50"}, mayFail: endedEarly},
	{name: "all timeouts 0", set: []string{
		"statement_timeout = 0", "lock_timeout = 0", "idle_in_transaction_session_timeout = 0", "idle_session_timeout = 0",
		"tcp_user_timeout = 0", "client_connection_check_interval = 0",
	}},
	{name: "network checks 1 ms", set: []string{"tcp_user_timeout = 1", "client_connection_check_interval = 1"}},
	{name: "deadlock_timeout 1 ms", set: []string{"deadlock_timeout = 1"}},
	{name: "serializable", set: []string{"default_transaction_isolation = 'serializable'"}},
	{name: "repeatable read", set: []string{"default_transaction_isolation = 'repeatable read'"}},
	{name: "read-only", set: []string{"default_transaction_read_only = on"}, fails: readOnlyTables, pgx: readOnlyTx},
	{name: "deferrable", set: []string{"default_transaction_deferrable = on", "default_transaction_isolation = 'serializable'"}},
	{name: "empty search_path", set: []string{"search_path = ''"}, fails: noPath},
	{name: "client_encoding SQL_ASCII", set: []string{"client_encoding = 'SQL_ASCII'"}},
	{name: "client_encoding LATIN1", set: []string{"client_encoding = 'LATIN1'"}},
	{name: "formats", set: []string{
		"DateStyle = 'SQL, DMY'", "IntervalStyle = 'sql_standard'", "TimeZone = 'Asia/Kathmandu'", "bytea_output = 'escape'",
		"extra_float_digits = -15", "xmloption = 'document'", "lc_messages = 'C'", "lc_numeric = 'C'", "lc_monetary = 'C'", "lc_time = 'C'",
	}},
	{name: "strings", set: []string{"standard_conforming_strings = off", "escape_string_warning = on", "backslash_quote = on", "quote_all_identifiers = on"}},
	{name: "arrays and nulls", set: []string{"array_nulls = off", "transform_null_equals = on"}},
	{name: "row_security off", set: []string{"row_security = off"}},
	{name: "force_custom_plan", set: []string{"plan_cache_mode = 'force_custom_plan'"}},
	{name: "force_generic_plan", set: []string{"plan_cache_mode = 'force_generic_plan'"}},
	{name: "jit of everything", set: []string{"jit = on", "jit_above_cost = 0"}, mayFail: []string{"it does not answer", "no connection", "no answer within", "did not answer in time"}},
	{name: "no tablespace", set: []string{"default_tablespace = 'nowhere'", "temp_tablespaces = 'nowhere'"}},
	{name: "odd plans", set: []string{
		"enable_hashjoin = off", "enable_nestloop = off", "enable_mergejoin = off", "enable_seqscan = off", "enable_indexscan = off",
		"enable_bitmapscan = off", "enable_indexonlyscan = off", "enable_sort = off", "enable_hashagg = off", "enable_material = off",
		"enable_tidscan = off", "from_collapse_limit = 1", "join_collapse_limit = 1", "geqo_threshold = 2", "constraint_exclusion = on",
	}},
	{name: "forced parallel query", set: []string{
		parallel + " = on", "parallel_setup_cost = 0", "parallel_tuple_cost = 0", "min_parallel_table_scan_size = 0",
		"min_parallel_index_scan_size = 0", "max_parallel_workers_per_gather = 8",
	}},
	{name: "forced parallel query, regress", set: []string{parallel + " = regress"}},
	{name: "little memory", set: []string{"work_mem = '64kB'", "maintenance_work_mem = '1MB'", "temp_buffers = '800kB'", "hash_mem_multiplier = 1"}},
	{name: "talkative logs", set: []string{
		"log_statement = 'all'", "log_min_duration_statement = 0", "log_lock_waits = on", "log_parser_stats = on", "client_min_messages = 'debug5'",
	}},
	{name: "session_replication_role", set: []string{"session_replication_role = 'replica'"}},
	{name: "synchronous_commit off", set: []string{"synchronous_commit = off", "commit_delay = 1"}},
	{name: "check_function_bodies off", set: []string{"check_function_bodies = off", "default_table_access_method = 'heap'", "default_toast_compression = 'pglz'"}},
	{name: "transaction_timeout 1 ms", set: []string{"transaction_timeout = 1"}, mayFail: endedEarly},
	{name: "transaction_timeout 50 ms", set: []string{"transaction_timeout = 50"}, mayFail: endedEarly},
}

// parallel is the setting that forces parallel query. Before PostgreSQL 16 it
// has another name.
const parallel = "debug_parallel_query"

// on returns the settings of c that the server of s knows, with the names that
// it has for them.
func (c roleSetting) on(t *testing.T, s stage) (all []string) {
	t.Helper()
	for _, setting := range c.set {
		name, value, _ := strings.Cut(setting, " ")
		if name == parallel && number(t, s.admin, "SELECT current_setting('server_version_num')::int") < 160000 {
			name = "force_parallel_mode"
		}
		if number(t, s.admin, "SELECT count(*) FROM pg_settings WHERE lower(name) = lower('"+name+"')") == 1 {
			all = append(all, name+" "+value)
		}
	}
	if len(c.set) > 0 && len(all) == 0 {
		t.Skip("this PostgreSQL does not have the setting")
	}
	return all
}

// Whatever the role sets in the database, a service keeps all promises, or
// meets an error that says why.
func TestLongSettings(t *testing.T) {
	t.Parallel()
	for _, c := range roleSettings {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, pgtest.Database(t))
			for _, setting := range c.on(t, s) {
				s.set(t, "ALTER ROLE %r IN DATABASE %d SET "+setting)
			}
			for _, s.driver = range pgtest.Drivers() {
				fails := maps.Clone(c.fails)
				if s.driver == "pgx" && c.pgx != nil {
					fails = outcome{}
					maps.Copy(fails, c.fails)
					maps.Copy(fails, c.pgx)
				}
				t.Run(s.driver, func(t *testing.T) { s.tryAll(t, fails, c.mayFail) })
			}
		})
	}
}

// Under several settings of the role at once a service keeps all promises, or
// meets an error that says why. TestLongSettings tries each setting.
func TestSettings(t *testing.T) {
	t.Parallel()
	const whose = "ROLE %r IN DATABASE %d"
	s := newStage(t, pgtest.Database(t))
	for _, setting := range []string{
		"statement_timeout = '10min'", "idle_in_transaction_session_timeout = '10min'", "default_transaction_isolation = 'serializable'",
		"default_transaction_read_only = on", "standard_conforming_strings = off", "client_encoding = 'LATIN1'",
		"plan_cache_mode = 'force_custom_plan'", "row_security = off", "jit_above_cost = 0",
	} {
		s.set(t, "ALTER "+whose+" SET "+setting)
	}
	for _, s.driver = range pgtest.Drivers() {
		fails := maps.Clone(readOnlyTables)
		if s.driver == "pgx" {
			maps.Copy(fails, readOnlyTx)
		}
		t.Run(s.driver, func(t *testing.T) { s.tryAll(t, fails, nil) })
	}
	s.set(t, "ALTER "+whose+" RESET ALL")
}
