package idempotency

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A poolShare admits the transactions of idempotent requests to one pool, so
// that they never use all of its connections. So a handler that asks the pool
// for another connection gets one in time, and its transaction ends.
//
// Invariant: taken is the number of admitted transactions that have not given
// their place back. No request gets a place while an earlier one waits.
type poolShare struct {
	mu      sync.Mutex // protects the fields below; never held across I/O
	taken   int
	waiting []chan struct{} // in the order of arrival; closed when admitted
}

// shares has the share of each pool of the process, for all Middlewares
// together. A pool that is garbage-collected leaves no entry.
var shares = struct {
	mu     sync.Mutex // protects byPool
	byPool map[weak.Pointer[sql.DB]]*poolShare
}{byPool: make(map[weak.Pointer[sql.DB]]*poolShare)}

func shareOf(db *sql.DB) *poolShare {
	shares.mu.Lock()
	defer shares.mu.Unlock()
	pool := weak.Make(db)
	share, ok := shares.byPool[pool]
	if !ok {
		share = &poolShare{}
		shares.byPool[pool] = share
		runtime.AddCleanup(db, forgetShare, pool)
	}
	return share
}

func forgetShare(pool weak.Pointer[sql.DB]) {
	shares.mu.Lock()
	defer shares.mu.Unlock()
	delete(shares.byPool, pool)
}

// take waits until one of limit places is free. It reports whether it has taken
// one before ctx ended.
func (p *poolShare) take(ctx context.Context, limit int) bool {
	admitted := make(chan struct{})
	p.mu.Lock()
	p.waiting = append(p.waiting, admitted)
	p.admitLocked(limit)
	p.mu.Unlock()
	select {
	case <-admitted:
		return true
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, admitted)
	if i < 0 {
		return true // admitted at this moment
	}
	p.waiting = slices.Delete(p.waiting, i, i+1)
	return false
}

// give gives a place back.
func (p *poolShare) give(limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	p.admitLocked(limit)
}

// admitLocked admits the requests that have waited longest, while places are
// free.
func (p *poolShare) admitLocked(limit int) {
	for p.taken < limit && len(p.waiting) > 0 {
		p.taken++
		close(p.waiting[0])
		p.waiting = slices.Delete(p.waiting, 0, 1)
	}
}

// places returns how many transactions of idempotent requests the pool may
// carry at once: all but one of its connections, as it is set now. A pool of
// one connection carries one, which suits a handler that uses only the
// transaction. SQLite has one writer.
func (s *store) places() int {
	if kind := s.kind.Load(); kind != nil && (*kind).oneWriter() {
		return 1
	}
	if size := s.db.Stats().MaxOpenConnections; size > 0 {
		return max(1, size-1)
	}
	return math.MaxInt
}

// poolError returns why no place was free in time, and what to change.
func (s *store) poolError() error {
	if kind := s.kind.Load(); kind != nil && (*kind).oneWriter() {
		return fmt.Errorf("%w: another idempotent request is in its transaction, and SQLite has one writer at a time:"+
			" make the handler shorter, and have it write by the transaction of idempotency.Tx only", sqllock.ErrUnavailable)
	}
	size := s.db.Stats().MaxOpenConnections
	if size == 1 {
		return fmt.Errorf("%w: the only connection of the pool is in use by the transaction of another idempotent request:"+
			" raise SetMaxOpenConns; with one connection a handler that asks the pool, instead of the transaction of idempotency.Tx, waits for itself", sqllock.ErrUnavailable)
	}
	return fmt.Errorf("%w: transactions of idempotent requests use %d of the pool's %d connections, and the last one is left for their handlers:"+
		" raise SetMaxOpenConns, or use the transaction of idempotency.Tx in the handler instead of the pool", sqllock.ErrUnavailable, max(0, size-1), size)
}

const poolOfOneHint = "idempotency: a handler was interrupted while its transaction had the pool's only connection, and a caller waited for one:" +
	" use the transaction of idempotency.Tx in the handler instead of the pool, or raise SetMaxOpenConns"

// starved reports whether t has the pool's only connection, and a caller has
// begun to wait for one since. The caller may be t's own handler, which then
// waits for itself.
func (t *transaction) starved() bool {
	stats := t.store.db.Stats()
	return stats.MaxOpenConnections == 1 && stats.WaitCount > t.waits
}
