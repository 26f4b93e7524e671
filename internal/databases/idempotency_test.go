package databases

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Every database stores the response together with the effect, and returns it
// for a retry at another instance. A response other than a success commits no
// effect. Some of them are stored.
func TestIdempotency(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		here, there := b.once(sqllock.NewMemory()), b.once(sqllock.NewMemory())
		effects := 0
		for _, tt := range []struct {
			status int
			stored bool
		}{{http.StatusCreated, true}, {http.StatusPaymentRequired, true}, {http.StatusInternalServerError, false}} {
			key := fmt.Sprint("k-", tt.status)
			first := post(t.Context(), here.Handler(b.pay(tt.status)), key, "10 to bob")
			wantStatus(t, first, tt.status)
			if first.Body.String() != "paid\x00\xff" {
				t.Errorf("body %q", first.Body)
			}
			again := post(t.Context(), there.Handler(b.pay(http.StatusOK)), key, "10 to bob")
			if tt.stored {
				wantReplay(t, again, first)
				wantStatus(t, post(t.Context(), there.Handler(b.pay(http.StatusOK)), key, "99 to bob"), http.StatusUnprocessableEntity)
			} else {
				wantStatus(t, again, http.StatusOK)
			}
			if tt.status == http.StatusCreated || !tt.stored {
				effects++
			}
			b.wantEffects(effects)
		}
		func() {
			defer func() { _ = recover() }() // the server's
			post(t.Context(), here.Handler(b.then(func(http.ResponseWriter, *http.Request) { panic("a bug") })), "k-panic", "10")
		}()
		b.wantEffects(effects)
		wantStatus(t, post(t.Context(), here.Handler(b.pay(http.StatusCreated)), "k-panic", "10"), http.StatusCreated)
	})
}

// shortBounds keeps the bounds of a Middleware short, for a test that reaches
// them.
var shortBounds = idempotency.WithMaxIdle(59 * time.Second)

// A request without a lock waits for the transaction of another request with
// its key, for a bounded time. It then returns that one's response. If there is
// none, it runs the handler itself.
func TestIdempotencyWithoutLocks(t *testing.T) {
	eachBankAndPostgreSQL(t, func(t *testing.T, b *bank) {
		refused := map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusConflict}[b.dialect == sqllock.SQLite]
		for n, status := range []int{http.StatusCreated, http.StatusServiceUnavailable} {
			key := fmt.Sprint("k-", n)
			b.runs.Store(0)
			inside, leave := make(chan struct{}), make(chan struct{})
			pay := b.then(func(w http.ResponseWriter, _ *http.Request) {
				if b.runs.Load() == 1 {
					close(inside)
					<-leave
					w.WriteHeader(status)
					return
				}
				w.WriteHeader(http.StatusCreated)
			})
			h, brief := b.unlocked().Handler(pay), b.unlocked(shortBounds).Handler(pay)
			first := posting(t, h, key, "10")
			<-inside
			lockertest.Eventually(t, "a request that waits is refused at its bound", func() bool {
				early := post(t.Context(), brief, key, "10")
				if early.Header().Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
				return early.Code == refused
			})
			codes := make(chan int, 3)
			for range cap(codes) {
				go func() { // a client, which asks again when it is told to
					code := refused
					for code == refused {
						code = post(t.Context(), h, key, "10").Code
					}
					codes <- code
				}()
			}
			close(leave)
			wantStatus(t, <-first, status)
			for range cap(codes) {
				if code := <-codes; code != http.StatusCreated {
					t.Errorf("status %d of a request that waited, want 201", code)
				}
			}
			b.wantEffects(n + 1)
		}
	})
}

// A handler that ends its transaction is detected. Nothing that it does
// afterwards is committed.
func TestIdempotencyTransactionEnded(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		effects := map[string]int{"COMMIT": 1, "ROLLBACK": 0}
		if b.dialect == sqllock.MySQL {
			effects["CREATE TABLE other (n INTEGER)"] = 1
		}
		i := b.once(sqllock.NewMemory())
		for statement, effects := range effects {
			execute(t, b.db, "DELETE FROM ledger")
			h := i.Handler(b.then(func(w http.ResponseWriter, r *http.Request) {
				tx, _ := idempotency.Tx(r.Context())
				_, _ = tx.ExecContext(r.Context(), statement)
				if b.dialect == sqllock.MySQL { // elsewhere it would be committed at once
					_, _ = tx.ExecContext(r.Context(), "INSERT INTO ledger VALUES ('debit', 'half')")
				}
				w.WriteHeader(http.StatusCreated)
			}))
			for range 1 + effects {
				wantStatus(t, post(t.Context(), h, strings.Fields(statement)[0], "10"), http.StatusInternalServerError)
			}
			b.wantEffects(effects)
		}
		b.wantLog("must not commit")
	})
}

// running counts the statements that MariaDB is running.
func (b *bank) running(like string) int {
	b.t.Helper()
	return number(b.t, b.db, "SELECT count(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND INFO LIKE ?", like)
}

// A deadlock rolls back the whole transaction in MariaDB. If the handler
// ignores the error and goes on, no half of its work is committed.
func TestIdempotencyDeadlockHidden(t *testing.T) {
	t.Parallel()
	b := bankDatabases["MariaDB"](t)
	execute(t, b.db, "CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL) ENGINE = InnoDB")
	execute(t, b.db, "INSERT INTO accounts VALUES (1, 0), (2, 0)")
	other := mustBegin(t, b.db)
	for _, statement := range []string{ // it has more to undo, so the handler is the victim
		"UPDATE accounts SET balance = 1", "INSERT INTO ledger SELECT 'other', seq FROM seq_1_to_100", "DELETE FROM accounts WHERE id = 2",
	} {
		execute(t, other, statement)
	}
	execute(t, b.db, "CREATE TABLE mine (id INTEGER PRIMARY KEY) ENGINE = InnoDB")
	execute(t, b.db, "INSERT INTO mine VALUES (1)")
	var failed atomic.Bool
	h := b.once(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, _ := idempotency.Tx(r.Context())
		for _, statement := range []string{"INSERT INTO ledger VALUES ('debit', '10')", "UPDATE mine SET id = 1 WHERE id = 1", "SELECT id FROM mine WHERE id = 1 FOR UPDATE"} {
			if _, err := tx.ExecContext(r.Context(), statement); err != nil {
				t.Errorf("%s: %v", statement, err)
			}
		}
		go func() { _, _ = other.Exec("SELECT id FROM mine WHERE id = 1 FOR UPDATE") }()
		lockertest.Eventually(t, "the other transaction waits", func() bool {
			return b.running("SELECT id FROM mine%") == 1
		})
		_, err := tx.ExecContext(r.Context(), "UPDATE accounts SET balance = 2 WHERE id = 1")
		failed.Store(err != nil && strings.Contains(err.Error(), "1213"))
		_, _ = tx.ExecContext(r.Context(), "INSERT INTO ledger VALUES ('credit', '10')")
		w.WriteHeader(http.StatusCreated)
	}))
	wantStatus(t, post(t.Context(), h, "k-1", "10"), http.StatusInternalServerError)
	if !failed.Load() {
		t.Error("the handler had no deadlock")
	}
	b.wantEffects(0)
	if n := number(t, b.db, "SELECT count(*) FROM latchkey_responses"); n != 0 {
		t.Errorf("%d keys are stored, want none", n)
	}
}

// A COMMIT that fails and leaves its transaction open takes no effect later: the
// settings of the connection are restored after a ROLLBACK. The connection is
// used again.
func TestIdempotencyCommitFails(t *testing.T) {
	t.Parallel()
	b := bankDatabases["MariaDB"](t)
	interceptor, db := rewritten(t, lockertest.Orders{Driver: b.driver, DSN: b.dsn})
	b.db = db
	b.db.SetMaxOpenConns(1)
	before := number(t, db, "SELECT CONNECTION_ID()")
	h := b.once(sqllock.NewMemory()).Handler(b.pay(http.StatusCreated))
	fail := func(query string) string { return strings.Replace(query, "COMMIT", "SELECT * FROM nowhere", 1) }
	interceptor.change.Store(&fail)
	wantStatus(t, post(t.Context(), h, "k-1", "1"), http.StatusInternalServerError) // that table is missing
	interceptor.change.Store(nil)
	b.wantEffects(0)
	wantStatus(t, post(t.Context(), h, "k-1", "1"), http.StatusCreated)
	b.wantEffects(1)
	if id := number(t, db, "SELECT CONNECTION_ID()"); id != before {
		t.Errorf("connection %d, want %d again", id, before)
	}
}

// The handler sees the connection's settings unchanged, except the bounds of
// idle time. Back in the pool the connection has all its old settings, whatever
// became of the request.
func TestIdempotencySettingsRestored(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		b.db.SetMaxOpenConns(1)
		query := map[sqllock.Dialect]string{
			sqllock.MySQL:  "SELECT CONCAT(@@autocommit + 0, ' ', @@innodb_lock_wait_timeout, ' ', @@wait_timeout)",
			sqllock.SQLite: "SELECT timeout FROM pragma_busy_timeout",
		}[b.dialect]
		before, inside := text(t, b, query), ""
		i := b.once(sqllock.NewMemory())
		for n, end := range []func(w http.ResponseWriter, r *http.Request){
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) },
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPaymentRequired) },
			func(_ http.ResponseWriter, r *http.Request) { tx, _ := idempotency.Tx(r.Context()); _ = tx.Commit() },
			func(_ http.ResponseWriter, r *http.Request) { tx, _ := idempotency.Tx(r.Context()); _ = tx.Rollback() },
		} {
			for range 2 { // the second may be a replay
				post(t.Context(), i.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					tx, _ := idempotency.Tx(r.Context())
					if err := tx.QueryRowContext(r.Context(), query).Scan(&inside); err != nil {
						t.Error(err)
					}
					end(w, r)
				})), fmt.Sprint("k-", n), "10")
			}
			if after := text(t, b, query); after != before {
				t.Errorf("settings %q after end %d, want %q", after, n, before)
			}
		}
		want := map[sqllock.Dialect]string{sqllock.MySQL: "0 50 60", sqllock.SQLite: fmt.Sprint(bound.Of(2 * time.Second).Milliseconds())}[b.dialect]
		if inside != want {
			t.Errorf("settings %q in the handler, want %q", inside, want)
		}
		if n := b.db.Stats().OpenConnections; n != 1 {
			t.Errorf("%d connections are open, want the same one as before", n)
		}
	})
}

func text(t *testing.T, b *bank, query string) (s string) {
	t.Helper()
	must(t, b.db.QueryRow(query).Scan(&s))
	return s
}

// A mistake in the service's setup is 500 at once, and the log says what to do.
// The handler does not run.
func TestIdempotencyWiring(t *testing.T) {
	t.Parallel()
	altered := func(change string) func(*bank) {
		return func(b *bank) { execute(b.t, b.db, "ALTER TABLE latchkey_responses "+change) }
	}
	for _, tt := range []struct {
		name, database string
		plant          func(b *bank)
		says           string
	}{
		{"no table", "MariaDB", func(b *bank) { execute(b.t, b.db, "DROP TABLE latchkey_responses") }, "latchkey_responses is missing"},
		{"no table", "SQLite", func(b *bank) { execute(b.t, b.db, "DROP TABLE latchkey_responses") }, "latchkey_responses is missing"},
		{"another table", "MariaDB", otherTable, "run the statements of idempotency.Schema"},
		{"another table", "SQLite", otherTable, "run the statements of idempotency.Schema"},
		{"no key", "MariaDB", altered("DROP PRIMARY KEY"), "is not as idempotency.Schema makes it"},
		{"a wider key", "MariaDB", altered("DROP PRIMARY KEY, ADD PRIMARY KEY (`key`, fingerprint)"), "is not as idempotency.Schema makes it"},
		{"a key that is not unique", "MariaDB", altered("DROP PRIMARY KEY, ADD KEY (`key`)"), "is not as idempotency.Schema makes it"},
		{"no transactions", "MariaDB", altered("ENGINE = MyISAM"), "is not as idempotency.Schema makes it"},
		{"no database selected", "MariaDB", func(b *bank) { b.db = open(b.t, "mysql", server(b.dsn)+"/") }, "the connection string names"},
		{"an unknown server", "SQLite", func(b *bank) { b.db = open(b.t, "pgx", unknownServer(b.t)) }, "none of PostgreSQL, MySQL, MariaDB, TiDB and SQLite"},
	} {
		t.Run(tt.database+"/"+tt.name, func(t *testing.T) {
			t.Parallel()
			b := bankDatabases[tt.database](t)
			tt.plant(b)
			w := post(t.Context(), b.once(sqllock.NewMemory()).Handler(b.pay(http.StatusCreated)), "k-1", "10")
			wantStatus(t, w, http.StatusInternalServerError)
			if w.Header().Get("Retry-After") != "" {
				t.Error("500 with Retry-After")
			}
			b.wantLog(tt.says)
			if n := b.runs.Load(); n != 0 {
				t.Errorf("the handler ran %d times", n)
			}
		})
	}
}

func otherTable(b *bank) {
	execute(b.t, b.db, "DROP TABLE latchkey_responses")
	execute(b.t, b.db, "CREATE TABLE latchkey_responses (fingerprint INTEGER)")
}

// Old responses are deleted, a thousand at a time.
func TestIdempotencyForget(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		i := b.once(sqllock.NewMemory())
		h := i.Handler(b.pay(http.StatusCreated))
		wantStatus(t, post(t.Context(), h, "k-1", "10"), http.StatusCreated)
		var rows []string
		for n := range 1500 {
			rows = append(rows, fmt.Sprintf("(UNHEX(SHA2('%d', 256)), '', NOW(6) - INTERVAL 2 DAY)", n))
		}
		old := map[sqllock.Dialect]string{
			sqllock.MySQL: "INSERT INTO latchkey_responses (`key`, fingerprint, created_at) VALUES " + strings.Join(rows, ", "),
			sqllock.SQLite: "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1500)" +
				" INSERT INTO latchkey_responses (key, fingerprint, created_at) SELECT CAST('k' || n AS BLOB), x'', strftime('%Y-%m-%d %H:%M:%f', 'now', '-2 days') FROM s",
		}[b.dialect]
		execute(t, b.db, old)
		for _, want := range []int64{1500, 0} {
			if n, err := i.Forget(t.Context(), 24*time.Hour); n != want || err != nil {
				t.Errorf("forgot %d, %v; want %d", n, err, want)
			}
		}
		wantReplay(t, post(t.Context(), h, "k-1", "10"), post(t.Context(), h, "k-1", "10"))
		lockertest.Eventually(t, "the last response is deleted", func() bool {
			n, err := i.Forget(t.Context(), time.Microsecond)
			return n == 1 && err == nil
		})
		execute(t, b.db, "DROP TABLE latchkey_responses")
		if _, err := i.Forget(t.Context(), time.Hour); err == nil || !strings.Contains(err.Error(), "idempotency.Schema") {
			t.Errorf("Forget without a table: %v", err)
		}
	})
}

// A reader of SQLite's file, without a write-ahead log, blocks a COMMIT. The
// transaction does not stay open in the pool.
func TestIdempotencySQLiteCommitBusy(t *testing.T) {
	t.Parallel()
	b := bankDatabases["SQLite"](t)
	reader, err := open(t, b.driver, b.dsn).Begin()
	must(t, err)
	defer reader.Rollback()
	pay := b.then(func(w http.ResponseWriter, _ *http.Request) {
		var n int
		if err := reader.QueryRow("SELECT count(*) FROM ledger").Scan(&n); err != nil && b.runs.Load() == 1 {
			t.Error(err)
		}
		w.WriteHeader(http.StatusCreated)
	})
	wantStatus(t, post(t.Context(), b.once(sqllock.NewMemory(), shortBounds).Handler(pay), "k-1", "10"), http.StatusServiceUnavailable)
	b.wantLog("the database file is locked")
	must(t, reader.Rollback())
	b.wantEffects(0)
	wantStatus(t, post(t.Context(), b.once(sqllock.NewMemory()).Handler(pay), "k-1", "10"), http.StatusCreated)
	b.wantEffects(1)
	if n := b.db.Stats().OpenConnections; n != 1 {
		t.Errorf("%d connections are open, want the same one as before", n)
	}
}
