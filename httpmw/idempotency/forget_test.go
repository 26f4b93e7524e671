package idempotency_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/httptesting"
)

const oldRows = `INSERT INTO latchkey_responses (key, fingerprint, status, created_at)
	SELECT sha256(n::text::bytea), '', 200, now() - interval '2 days' FROM generate_series(1, 2500) n`

// Forget deletes old responses in batches. Their keys are new after that.
func TestForget(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	i := b.once(b.locks())
	s := b.serve(i, b.pay(http.StatusCreated))
	mustAsk(t, s, demand{key: "k-1"}).Want(t, http.StatusCreated)
	b.do(oldRows)
	for _, want := range []int64{2500, 0} {
		if n, err := i.Forget(t.Context(), 24*time.Hour); n != want || err != nil {
			t.Errorf("forgot %d, %v; want %d", n, err, want)
		}
	}
	if !isReplay(mustAsk(t, s, demand{key: "k-1"})) {
		t.Error("a young response was forgotten")
	}
	if n, err := i.Forget(t.Context(), time.Microsecond); n != 1 || err != nil {
		t.Errorf("forgot %d, %v; want 1", n, err)
	}
	mustAsk(t, s, demand{key: "k-1"}).Want(t, http.StatusCreated)
	b.wantEffects(2)

	if _, err := i.Forget(t.Context(), 0); err == nil {
		t.Error("Forget took a duration of 0")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := i.Forget(ctx, time.Hour); err != context.Canceled {
		t.Errorf("Forget: %v, want the context's error", err)
	}
	b.do("DROP TABLE latchkey_responses")
	if _, err := i.Forget(t.Context(), time.Hour); err == nil || !strings.Contains(err.Error(), "idempotency.Schema") {
		t.Errorf("Forget without a table: %v", err)
	}
}

// Two calls at once do not wait for each other, and count each row once.
func TestForgetTwice(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	i := b.once(b.locks())
	b.do(oldRows)
	tx, err := b.db.Begin() // another instance in the middle of a batch
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("DELETE FROM latchkey_responses WHERE key IN (SELECT key FROM latchkey_responses ORDER BY created_at LIMIT 500)"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), httptesting.Patience)
	defer cancel()
	if n, err := i.Forget(ctx, time.Hour); n != 2000 || err != nil {
		t.Errorf("forgot %d, %v; want 2000, without a wait for the other", n, err)
	}
}
