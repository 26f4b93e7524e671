package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Forget deletes old responses in batches, and skips those that another instance
// is deleting.
func TestForget(t *testing.T) {
	t.Parallel()
	b := oneBank(t)
	i := b.once(sqllock.NewMemory())
	b.do(`INSERT INTO latchkey_responses (key, fingerprint, status, created_at)
		SELECT sha256(n::text::bytea), '', 200, now() - interval '2 days' FROM generate_series(1, 2500) n`)
	forget := func(want int64) {
		t.Helper()
		if n, err := i.Forget(t.Context(), 24*time.Hour); n != want || err != nil {
			t.Errorf("forgot %d, %v; want %d", n, err, want)
		}
	}
	other := dbtest.Transaction(t, b.db)
	if _, err := other.Exec("DELETE FROM latchkey_responses WHERE key IN (SELECT key FROM latchkey_responses ORDER BY created_at LIMIT 500)"); err != nil {
		t.Fatal(err)
	}
	forget(2000)
	_ = other.Rollback()
	forget(500)
	if _, err := i.Forget(t.Context(), 0); err == nil {
		t.Error("Forget took a duration of 0")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := i.Forget(ctx, time.Hour); err != context.Canceled {
		t.Errorf("Forget: %v, want the context's error", err)
	}
}
