package databases

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A setting is what a role or a database sets, and what a service meets then.
type setting struct {
	name    string
	set     []string
	fails   outcome
	mayFail outcome
}

// by returns the statements that set something for the role in the database.
func by(values ...string) (statements []string) {
	for _, s := range values {
		statements = append(statements, "ALTER ROLE %r IN DATABASE %d SET "+s)
	}
	return statements
}

var roleSettings = []setting{
	{name: "nothing"},
	{name: "statement_timeout 1 ms", set: by("statement_timeout = 1")},
	{name: "statement_timeout 50 ms", set: by("statement_timeout = 50")},
	{name: "lock_timeout 1 ms", set: by("lock_timeout = 1")},
	{name: "idle_in_transaction_session_timeout 1 ms", set: by("idle_in_transaction_session_timeout = 1")},
	{name: "idle_in_transaction_session_timeout 50 ms", set: by("idle_in_transaction_session_timeout = 50")},
	{name: "idle_session_timeout 1 ms", set: by("idle_session_timeout = 1")},
	{name: "idle_session_timeout 50 ms", set: by("idle_session_timeout = 50")},
	{name: "all timeouts 0", set: by("statement_timeout = 0", "lock_timeout = 0", "idle_in_transaction_session_timeout = 0", "idle_session_timeout = 0", "tcp_user_timeout = 0", "client_connection_check_interval = 0")},
	{name: "tcp_user_timeout 1 ms", set: by("tcp_user_timeout = 1", "client_connection_check_interval = 1")},
	{name: "deadlock_timeout 1 ms", set: by("deadlock_timeout = 1")},
	{name: "serializable", set: by("default_transaction_isolation = 'serializable'")},
	{name: "repeatable read", set: by("default_transaction_isolation = 'repeatable read'")},
	{name: "read only", set: by("default_transaction_read_only = on")},
	{name: "deferrable", set: by("default_transaction_deferrable = on", "default_transaction_isolation = 'serializable'", "default_transaction_read_only = on")},
	{name: "search_path empty", set: by("search_path = ''")},
	{name: "client_encoding SQL_ASCII", set: by("client_encoding = 'SQL_ASCII'")},
	{name: "client_encoding LATIN1", set: by("client_encoding = 'LATIN1'")},
	{name: "formats", set: by("DateStyle = 'SQL, DMY'", "IntervalStyle = 'sql_standard'", "TimeZone = 'Asia/Kathmandu'", "bytea_output = 'escape'", "extra_float_digits = -15", "xmloption = 'document'", "lc_messages = 'C'", "lc_numeric = 'C'", "lc_monetary = 'C'", "lc_time = 'C'")},
	{name: "strings", set: by("standard_conforming_strings = off", "escape_string_warning = on", "backslash_quote = on", "quote_all_identifiers = on")},
	{name: "arrays and nulls", set: by("array_nulls = off", "transform_null_equals = on")},
	{name: "row_security off", set: by("row_security = off")},
	{name: "force_custom_plan", set: by("plan_cache_mode = 'force_custom_plan'")},
	{name: "force_generic_plan", set: by("plan_cache_mode = 'force_generic_plan'")},
	{name: "jit", set: by("jit = on", "jit_above_cost = 0")},
	{name: "tablespaces", set: by("default_tablespace = 'nowhere'", "temp_tablespaces = 'nowhere'")},
	{name: "plans", set: by("enable_hashjoin = off", "enable_nestloop = off", "enable_mergejoin = off", "enable_seqscan = off", "enable_indexscan = off", "enable_bitmapscan = off", "enable_indexonlyscan = off", "enable_sort = off", "enable_hashagg = off", "enable_material = off", "enable_memoize = off", "enable_tidscan = off", "from_collapse_limit = 1", "join_collapse_limit = 1", "geqo_threshold = 2", "constraint_exclusion = on")},
	{name: "parallel", set: by("force_parallel_mode = on", "parallel_setup_cost = 0", "parallel_tuple_cost = 0", "min_parallel_table_scan_size = 0", "min_parallel_index_scan_size = 0", "max_parallel_workers_per_gather = 8")},
	{name: "parallel regress", set: by("force_parallel_mode = regress")},
	{name: "work_mem", set: by("work_mem = '64kB'", "maintenance_work_mem = '1MB'", "temp_buffers = '800kB'", "hash_mem_multiplier = 1")},
	{name: "log_statement", set: by("log_statement = 'all'", "log_min_duration_statement = 0", "log_lock_waits = on", "log_parser_stats = on", "client_min_messages = 'debug5'")},
	{name: "session_replication_role", set: by("session_replication_role = 'replica'")},
	{name: "synchronous_commit", set: by("synchronous_commit = off", "commit_delay = 1")},
	{name: "functions", set: by("check_function_bodies = off", "default_table_access_method = 'heap'", "gin_fuzzy_search_limit = 1", "default_with_oids = off", "vacuum_freeze_min_age = 0")},
}

// Whatever the role sets in the database, a service keeps all promises, or
// meets an error that says why.
func TestSettings(t *testing.T) {
	for _, c := range roleSettings {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, pgtest.Database(t))
			s.set(t, c.set...)
			for _, s.driver = range pgtest.Drivers() {
				t.Run(s.driver, func(t *testing.T) { s.tryAll(t, c.fails, c.mayFail) })
			}
		})
	}
}
