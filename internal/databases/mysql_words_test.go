package databases

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// reservedInMySQL is the words that are reserved in MySQL 8.0, 8.4 or 9, and that MariaDB, on which
// the tests run, allows as names.
const reservedInMySQL = " cube cume_dist dense_rank empty except first_value function generated get grouping groups" +
	" intersect io_after_gtids io_before_gtids json_table lag last_value lateral lead library manual master_bind nth_value ntile" +
	" of optimizer_costs over parallel percent_rank qualify rank recursive row row_number rows stored system tablesample" +
	" virtual window "

// Of our statements, those of the tables included, none has a name that MySQL reserves.
func TestMySQLReservedWords(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	spoiler, db := newSpoiler(t, o)
	var (
		mu         sync.Mutex
		statements = slices.Concat(sqllock.Schema(sqllock.MySQL), sqllock.FenceSchema(sqllock.MySQL), watermark.Schema(sqllock.MySQL))
	)
	record := func(query string) string {
		mu.Lock()
		defer mu.Unlock()
		statements = append(statements, query)
		return query
	}
	spoiler.change.Store(&record)
	s, err := mysql.Dialect{}.Open(context.Background(), db, settings)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Destroy()
	exchange(t, s, dialect.Batch{Release: big(4), Try: big(1), Any: [][]dialect.Key{big(2, 3)}})
	held(t, s)
	if _, err := s.UseSecret(dialect.SecretCheck{Class: 1, Fingerprint: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.DropSecret(dialect.SecretCheck{Class: 1, Fingerprint: 1}); err != nil {
		t.Fatal(err)
	}
	token, err := s.Token()
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := usertx.Fence(t.Context(), tx, big(1)[0], token); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, statement := range statements {
		for line := range strings.Lines(statement) {
			code, _, _ := strings.Cut(line, "--")
			words := strings.FieldsFunc(strings.ToLower(code), func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') })
			for _, word := range words {
				if strings.Contains(reservedInMySQL, " "+word+" ") {
					t.Errorf("%q is a reserved word in MySQL: %.80s", word, line)
				}
			}
		}
	}
	for _, mark := range []string{"GET_LOCK", "IS_USED_LOCK", "INSERT", "UPDATE", "DELETE", "latchkey_fence"} {
		if !strings.Contains(strings.Join(statements[1:], "\n"), mark) {
			t.Errorf("no statement with %s was recorded", mark)
		}
	}
}

// passes reports whether the fence of key 1 lets token pass, on a connection with options.
func passes(t *testing.T, dsn string, token dialect.Token) bool {
	t.Helper()
	tx, err := open(t, "mysql", dsn).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	passage, err := usertx.Fence(t.Context(), tx, big(1)[0], token)
	if err != nil {
		t.Fatalf("Fence: %v", err)
	}
	if passage == usertx.Passed {
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	return passage == usertx.Passed
}

// A fence refuses whatever the connection that comes to it has been told to put up with.
func TestMySQLFenceInEveryMode(t *testing.T) {
	t.Parallel()
	for _, options := range []string{
		"", "?check_constraint_checks=0", "?sql_mode=%27%27", "?sql_mode=%27NO_UNSIGNED_SUBTRACTION%27", "?sql_mode=%27SIMULTANEOUS_ASSIGNMENT%27",
		"?sql_mode=%27TRADITIONAL%27", "?sql_mode=%27ORACLE%27", "?sql_mode=%27HIGH_NOT_PRECEDENCE%27", "?check_constraint_checks=0&sql_mode=%27%27",
	} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			o := mariadb(t)
			earlier, later := drawn(t, o), drawn(t, o)
			for i, step := range []struct {
				token dialect.Token
				want  bool
			}{{earlier, true}, {earlier, true}, {later, true}, {earlier, false}, {earlier, false}, {later, true}} {
				if got := passes(t, o.DSN+options, step.token); got != step.want {
					t.Errorf("step %d: passed %t", i, got)
				}
			}
		})
	}
}

// After a failover to a server whose clock is behind, tokens are greater than those before.
func TestMySQLTokensAfterFailover(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	before := drawn(t, o)
	again := drawn(t, o)
	if before.Epoch != again.Epoch || !before.Before(again) || before.System != again.System {
		t.Errorf("on one server: %+v, then %+v", before, again)
	}
	db := open(t, o.Driver, o.DSN)
	// As the replica's table says: another server drew last, by a clock a day ahead; and
	// the last tokens have not come across.
	execute(t, db, "UPDATE latchkey_tokens SET server_hash = server_hash + 1")
	ahead := again
	ahead.Number += 24 * 3600 * 1e6
	after := drawn(t, o)
	if !ahead.Before(after) || after.System != before.System {
		t.Errorf("after a failover: %+v, and before %+v", after, ahead)
	}
	if !passes(t, o.DSN, ahead) || !passes(t, o.DSN, after) || passes(t, o.DSN, ahead) {
		t.Error("the fence takes one from before the failover for the later")
	}
	if next := drawn(t, o); next.Epoch != after.Epoch {
		t.Errorf("the epoch rises though the server is the same: %+v, then %+v", after, next)
	}
}

// A batch of as many keys as Room says is carried out, even if each is a group; one that is
// too long is refused, and changes nothing.
func TestMySQLRoom(t *testing.T) {
	t.Parallel()
	server := mariadbtest.New(t, "--max-allowed-packet=64K")
	db := open(t, "mysql", server.Database(t))
	s := connectTo(t, db, false)
	room := s.(interface{ Room() int }).Room()
	if room < 300 {
		t.Errorf("there is room for %d keys", room)
	}
	var groups [][]dialect.Key
	var ids []int64
	for i := range int64(room) {
		groups = append(groups, big(i-1<<62))
		ids = append(ids, i-1<<62)
	}
	if got := exchange(t, s, dialect.Batch{Any: groups}); len(got.Won) != room {
		t.Errorf("%d answers to %d groups", len(got.Won), room)
	}
	if got := held(t, s); len(got) != room {
		t.Errorf("%d keys are held of %d", len(got), room)
	}
	exchange(t, s, dialect.Batch{Release: big(ids...)})
	one := exchange(t, s, dialect.Batch{Any: [][]dialect.Key{big(ids...)}})
	if one.Won[0] != 0 {
		t.Errorf("of a large group won %d", one.Won[0])
	}
	for range 2 {
		groups = append(groups, groups...)
	}
	if err := s.Exchange(&dialect.Batch{Any: groups}); !isOfKind(err, dialect.Full) || !strings.Contains(err.Error(), "max_allowed_packet") {
		t.Errorf("Exchange of too many: %v, want a Failure of Kind Full that says why", err)
	}
	if got := held(t, s); len(got) != 1 {
		t.Errorf("%d keys are held, want 1", len(got))
	}
}

// A driver that allows less than the server sends nothing, and that ends no session.
func TestMySQLTooLongForTheDriver(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	o.DSN += "?maxAllowedPacket=4096"
	s := process(t, o)
	lock := mustLock(t, s, sqllock.ID(-1))
	few := connect(t, o)
	for i := range int64(50) {
		exchange(t, few, dialect.Batch{Try: big(i + 1<<40)})
	}
	if got := held(t, few); len(got) != 50 {
		t.Errorf("%d keys are held, want 50", len(got))
	}
	var keys []sqllock.Key
	for i := range 1000 {
		keys = append(keys, sqllock.ID(int64(i)))
	}
	if _, err := s.TryAny(t.Context(), keys...); err == nil || !strings.Contains(err.Error(), "max_allowed_packet") {
		t.Errorf("TryAny of 1,000 keys: %v", err)
	}
	if err := lock.Err(); err != nil {
		t.Errorf("a lock beside: %v", err)
	}
}
