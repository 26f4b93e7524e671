package idempotency_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A commitFault is what happens to the next COMMIT or BEGIN.
type commitFault int32

const (
	noFault      commitFault = iota
	lostReply                // the server commits, the client gets no reply
	lostQuestion             // the server gets no COMMIT
	lostInsert               // not a COMMIT: the connection is gone when the key's row is inserted
	refused                  // not a COMMIT: the driver cannot ask for the table's columns
	noRollback               // not a COMMIT: the driver sends no ROLLBACK, and its error has no code
	stuck                    // not a COMMIT: the driver does not return from BEGIN, and ignores its context
)

// A meddler is a connector whose next COMMIT or BEGIN meets a fault.
type meddler struct {
	driver  driver.Driver
	dsn     string
	next    atomic.Int32  // a commitFault
	opened  atomic.Int32  // connections
	unstick chan struct{} // closed: what was stuck goes on
}

// meddle puts a meddler between b and its database.
func (b *bank) meddle() *meddler {
	m := &meddler{driver: b.db.Driver(), dsn: b.dsn, unstick: make(chan struct{})}
	b.db = sql.OpenDB(m)
	b.t.Cleanup(func() { _ = b.db.Close() })
	return m
}

func (m *meddler) Driver() driver.Driver { return m.driver }

func (m *meddler) Connect(context.Context) (driver.Conn, error) {
	m.opened.Add(1)
	conn, err := m.driver.Open(m.dsn)
	return &meddledConn{conn, m}, err
}

// A meddledConn has only the methods that database/sql requires.
type meddledConn struct {
	driver.Conn
	m *meddler
}

func (c *meddledConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if strings.HasPrefix(query, "INSERT INTO latchkey_responses") && c.m.next.CompareAndSwap(int32(lostInsert), int32(noFault)) {
		_ = c.Conn.Close()
		return nil, driver.ErrBadConn
	}
	if strings.Contains(query, "attnotnull") && c.m.next.CompareAndSwap(int32(refused), int32(noFault)) {
		return nil, errors.New("no such mode")
	}
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c *meddledConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.m.next.CompareAndSwap(int32(stuck), int32(noFault)) {
		<-c.m.unstick
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	return meddledTx{tx, c}, err
}

type meddledTx struct {
	driver.Tx
	conn *meddledConn
}

func (tx meddledTx) Commit() error {
	switch commitFault(tx.conn.m.next.Swap(int32(noFault))) {
	case lostReply:
		_ = tx.Tx.Commit()
	case lostQuestion:
	default:
		return tx.Tx.Commit()
	}
	_ = tx.conn.Conn.Close()
	return driver.ErrBadConn
}

func (tx meddledTx) Rollback() error {
	if tx.conn.m.next.CompareAndSwap(int32(noRollback), int32(noFault)) {
		return errors.New("no answer")
	}
	return tx.Tx.Rollback()
}

// A connection is used again after a COMMIT and after a ROLLBACK, unless it is
// in doubt whether its transaction has ended.
func TestConnectionUsedAgain(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		m := b.meddle()
		b.db.SetMaxOpenConns(1)
		once := b.once(sqllock.NewMemory())
		paid, failed := b.serve(once, b.pay(http.StatusCreated)), b.serve(once, b.pay(http.StatusInternalServerError))
		mustAsk(t, paid, demand{key: "k-1"}).Want(t, http.StatusCreated)
		mustAsk(t, failed, demand{key: "k-2"}).Want(t, http.StatusInternalServerError)
		mustAsk(t, paid, demand{key: "k-2"}).Want(t, http.StatusCreated)
		if n := m.opened.Load(); n != 1 {
			t.Errorf("%d connections were opened for three requests in turn, want 1", n)
		}
		m.next.Store(int32(noRollback))
		mustAsk(t, failed, demand{key: "k-3"}).Want(t, http.StatusInternalServerError)
		mustAsk(t, paid, demand{key: "k-3"}).Want(t, http.StatusCreated)
		if n := m.opened.Load(); n != 2 {
			t.Errorf("%d connections were opened, want another after a ROLLBACK without an answer", n)
		}
		b.wantEffects(3)
	})
}

// When the outcome of the commit is unknown, the response is 503 with
// Retry-After, and a retry finds out. So it is when the connection is gone
// before. A lost connection leaves its place in the pool, which is the only one.
func TestConnectionLost(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		m := b.meddle()
		b.db.SetMaxOpenConns(2)
		s := b.serve(b.once(b.locks()), b.pay(http.StatusCreated))
		for _, tt := range []struct {
			key      string
			fault    commitFault
			replayed bool
			runs     int32
		}{
			{"reply-lost", lostReply, true, 1},
			{"question-lost", lostQuestion, false, 2},
			{"insert-lost", lostInsert, false, 1},
		} {
			b.do("DELETE FROM ledger")
			b.runs.Store(0)
			m.next.Store(int32(tt.fault))
			d := demand{key: tt.key}
			wantLater(t, mustAsk(t, s, d), http.StatusServiceUnavailable)
			r := b.retry(s, d)
			if r.Want(t, http.StatusCreated); isReplay(r) != tt.replayed || b.runs.Load() != tt.runs {
				t.Errorf("%s: replayed %v in %d runs, want %v in %d", tt.key, isReplay(r), b.runs.Load(), tt.replayed, tt.runs)
			}
			b.wantEffects(1)
		}
		b.wantLog("unavailable")
	})
}

// A driver that cannot ask for the table's columns is a mistake, and not a
// database that is away. Once it can, requests are served.
func TestDriverRefuses(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		m := b.meddle()
		m.next.Store(int32(refused))
		s := b.serve(b.once(sqllock.NewMemory()), b.pay(http.StatusCreated))
		mustAsk(t, s, demand{key: "k-1"}).Want(t, http.StatusInternalServerError)
		b.wantLog("the driver cannot")
		b.retry(s, demand{key: "k-1"}).Want(t, http.StatusCreated)
	})
}

// The request ends with its client although the driver is stuck. Its lock is
// free then. Its connection is destroyed when the driver returns at last.
func TestStuckDriver(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	m := b.meddle()
	s := b.serve(b.once(sqllock.NewMemory()), b.pay(http.StatusCreated))
	m.next.Store(int32(stuck))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	gone := make(chan error, 1)
	go func() {
		_, err := ask(ctx, s, demand{key: "k-1"})
		gone <- err
	}()
	lockertest.Eventually(t, "the driver is stuck", func() bool { return m.next.Load() == int32(noFault) })
	leave()
	if err := httptesting.Receive(t, gone, "end of the client"); err == nil {
		t.Error("the client has a response")
	}
	b.retry(s, demand{key: "k-1"}).Want(t, http.StatusCreated)
	b.wantEffects(1)
	before := b.db.Stats()
	if before.InUse != 1 {
		t.Errorf("%d connections are in use, want the stuck one", before.InUse)
	}
	close(m.unstick)
	lockertest.Eventually(t, "the connection is not in use any more", func() bool { return b.db.Stats().InUse == 0 })
	if n := b.db.Stats().OpenConnections; n != before.OpenConnections-1 {
		t.Errorf("%d connections are open, want one less than %d", n, before.OpenConnections)
	}
}

// A serialization failure at the commit is known to have rolled back
// everything.
func TestSerializationFailure(t *testing.T) {
	eachBank(t, func(t *testing.T, b *bank) {
		g := httptesting.NewGate(t)
		s := b.serve(b.once(b.locks(), idempotency.WithTxOptions(sql.TxOptions{Isolation: sql.LevelSerializable})),
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				tx, _ := idempotency.Tx(r.Context())
				var n int
				if err := tx.QueryRowContext(r.Context(), "SELECT count(*) FROM ledger").Scan(&n); err != nil {
					t.Error(err)
				}
				if b.record(r); b.runs.Load() <= 2 {
					g.ServeHTTP(w, r)
				}
			}))
		one, two := asking(t, s, demand{key: "k-1", body: "1"}), asking(t, s, demand{key: "k-2", body: "2"})
		httptesting.Receive(t, g.Inside, "first request")
		httptesting.Receive(t, g.Inside, "second request")
		close(g.Leave)
		codes := []int{httptesting.Receive(t, one, "first response").StatusCode, httptesting.Receive(t, two, "second response").StatusCode}
		if codes[0]+codes[1] != http.StatusOK+http.StatusServiceUnavailable {
			t.Errorf("responses %v, want 200 and 503", codes)
		}
		b.wantEffects(1)
		b.wantLog("40001")
		for _, d := range []demand{{key: "k-1", body: "1"}, {key: "k-2", body: "2"}} {
			mustAsk(t, s, d).Want(t, http.StatusOK)
		}
		b.wantEffects(2)
	})
}
