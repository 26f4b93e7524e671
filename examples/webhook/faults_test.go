package main

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
)

// A sender that hangs up in the middle does not undo the work.
func TestSenderHangsUp(t *testing.T) {
	t.Parallel()
	rc, url := newTestReceiver(t)
	h := handler(t, rc, url)
	hungUp := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		rc.ServeHTTP(w, r.WithContext(ctx))
	})
	body := payloadOf(t, event{ID: "evt-1", Account: "a", Amount: 1})
	post(t, verify(testSecret, hungUp), body, testSecret, time.Now())
	if w := post(t, h, body, testSecret, time.Now()); w.Header().Get("Webhook-Replayed") == "" {
		t.Errorf("the retry: %d, want it to find the work done", w.Code)
	}
	wantEntries(t, rc.db, 1)
}

// Tables that go while receivers run: 503, so that the sender tries again.
func TestTablesDropped(t *testing.T) {
	t.Parallel()
	rc, url := newTestReceiver(t)
	h := handler(t, rc, url)
	dbtest.Execute(t, rc.db, "DROP TABLE processed_events")
	body := payloadOf(t, event{ID: "evt-1", Account: "a", Amount: 1})
	if w := post(t, h, body, testSecret, time.Now()); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("without the table: %d", w.Code)
	}
	if err := migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if w := post(t, h, body, testSecret, time.Now()); w.Code != http.StatusOK {
		t.Errorf("with it again: %d", w.Code)
	}
	wantEntries(t, rc.db, 1)
}

// An event that the database can never take is rejected for good, and nothing of it
// is left.
func TestPoison(t *testing.T) {
	t.Parallel()
	for name, constraint := range map[string]string{
		"at the statement": "CHECK (amount > 0)",
		"at the commit":    "UNIQUE (amount) DEFERRABLE INITIALLY DEFERRED",
	} {
		rc, url := newTestReceiver(t)
		dbtest.Execute(t, rc.db, "ALTER TABLE ledger ADD "+constraint)
		h := handler(t, rc, url)
		good, bad := event{ID: "evt-1", Account: "a", Amount: 1}, event{ID: "evt-2", Account: "a", Amount: 0}
		if name == "at the commit" {
			bad.Amount = good.Amount
		}
		if w := post(t, h, payloadOf(t, good), testSecret, time.Now()); w.Code != http.StatusOK {
			t.Errorf("%s: a good event: %d", name, w.Code)
		}
		for range 2 {
			if w := post(t, h, payloadOf(t, bad), testSecret, time.Now()); w.Code != http.StatusUnprocessableEntity {
				t.Errorf("%s: %d, want 422", name, w.Code)
			}
		}
		wantEntries(t, rc.db, 1)
	}
}

// A process that freezes in an effect keeps its event no longer than a
// transaction may be idle; when it wakes up it has not done it.
func TestLongFrozenInEffect(t *testing.T) {
	t.Parallel()
	frozen, _ := newTestReceiver(t)
	frozen.maxIdle, frozen.work = 500*time.Millisecond, 15*time.Second // much longer than the server waits
	e, err := parseEvent(payloadOf(t, event{ID: "evt-1", Account: "a", Amount: 1}))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := frozen.once(t.Context(), e)
		ended <- err
	}()
	// A transaction has an id once it has written. The text of its statement would
	// not do: the server shows it when the driver has only prepared the statement.
	lockertest.Eventually(t, "it has its row", func() bool {
		var n int
		err := frozen.db.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction' AND backend_xid IS NOT NULL").Scan(&n)
		return err == nil && n > 0
	})
	other := &receiver{db: frozen.db, maxIdle: time.Minute}
	if o, err := other.once(t.Context(), e); err != nil || o.again {
		t.Errorf("another one: %+v, %v; want it to do the work", o, err)
	}
	if err := <-ended; err == nil {
		t.Error("the frozen one has committed")
	}
	wantEntries(t, frozen.db, 1)
}
