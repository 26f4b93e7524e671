package metricstest

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// ids is how many different ids the test of the cardinality uses.
const ids = 10_000

// Requests of many ids, with every result that needs no outage, leave the number
// of series unchanged. No series holds an id, its key, or what the database is
// called.
func cardinality(t *testing.T, start func(*testing.T) Subject) {
	s, dsn := start(t), pgtest.Database(t)
	locks := open(t, s, "main", "pgx", dsn)
	free := limit(s, locks, "free")
	memory := sqllock.NewMemory()
	held := limit(s, memory, "held", ratelimit.WithWait(time.Nanosecond, 1))
	dry := limit(s, memory, "held", ratelimit.WithDryRun())
	secret := sqllock.Namespace("election").Key("needle-key")
	s.Campaign("nightly", election.New(locks, secret))
	touch := func(i int) string {
		id := "needle-" + strconv.Itoa(i)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lock := acquire(t, free, id)
		outer := acquire(t, held, id)
		_, _ = held.Acquire(ctx, id)
		_, _ = dry.Acquire(ctx, id)
		cancel()
		_, _ = held.Acquire(ctx, id)
		_ = inside.Refuse(ctx, held, ratelimit.ErrBadID)
		dbtest.Unlock(t, outer)
		dbtest.Unlock(t, lock)
		return strconv.FormatInt(free.Namespace().Key(id).Int64(), 10)
	}
	words := []string{"needle", strconv.FormatInt(secret.Int64(), 10), "127.0.0.1", "localhost"}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	words = append(words, strings.TrimPrefix(u.Path, "/"))
	touch(0)
	lockertest.Eventually(t, "the Session knows its lock table", func() bool { return locks.Stats().TableSize > 0 })
	before := len(read(t, s))
	for i := range ids {
		words = append(words, touch(i+1))
	}
	if after := len(read(t, s)); after != before || before < 50 {
		t.Errorf("%d series before and %d after %d ids", before, after, ids)
	}
	text := s.Exposition(t)
	for _, word := range words {
		if word == "" || strings.Contains(text, word) {
			t.Errorf("the exposition holds %q", word)
		}
	}
	if n := read(t, s)[requests("free", "admitted")]; n != ids+1 {
		t.Errorf("%v requests were admitted, want %d", n, ids+1)
	}
}
