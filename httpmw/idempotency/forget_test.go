package idempotency_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
)

const oldRows = `INSERT INTO latchkey_responses (key, fingerprint, status, created_at)
	SELECT sha256(n::text::bytea), '', 200, now() - interval '2 days' FROM generate_series(1, 2500) n`

// Forget deletes old responses in batches. Their keys are new after that. Two
// calls at once do not wait for each other, and count each row once.
func TestForget(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	i := b.once(b.locks())
	s := b.serve(i, b.pay(http.StatusCreated))
	mustAsk(t, s, demand{key: "k-1"}).Want(t, http.StatusCreated)
	b.do(oldRows)
	ctx, cancel := context.WithTimeout(t.Context(), httptesting.Patience)
	defer cancel()
	forget := func(age time.Duration, want int64) {
		t.Helper()
		if n, err := i.Forget(ctx, age); n != want || err != nil {
			t.Errorf("forgot %d, %v; want %d", n, err, want)
		}
	}
	other := dbtest.Transaction(t, b.db) // another instance in the middle of a batch
	if _, err := other.Exec("DELETE FROM latchkey_responses WHERE key IN (SELECT key FROM latchkey_responses ORDER BY created_at LIMIT 500)"); err != nil {
		t.Fatal(err)
	}
	forget(24*time.Hour, 2000)
	_ = other.Rollback()
	forget(24*time.Hour, 500)
	forget(24*time.Hour, 0)
	if !isReplay(mustAsk(t, s, demand{key: "k-1"})) {
		t.Error("a young response was forgotten")
	}
	forget(time.Microsecond, 1)
	mustAsk(t, s, demand{key: "k-1"}).Want(t, http.StatusCreated)
	b.wantEffects(2)

	if _, err := i.Forget(ctx, 0); err == nil {
		t.Error("Forget took a duration of 0")
	}
	b.do("DROP TABLE latchkey_responses")
	if _, err := i.Forget(ctx, time.Hour); err == nil || !strings.Contains(err.Error(), "idempotency.Schema") {
		t.Errorf("Forget without a table: %v", err)
	}
	cancel()
	if _, err := i.Forget(ctx, time.Hour); err != context.Canceled {
		t.Errorf("Forget: %v, want the context's error", err)
	}
}
