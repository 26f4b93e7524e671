package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/sqllock"
)

// failOver promotes a standby that lacks the last writes. By then the old
// primary is dead, or it goes on with a holder of locks.
func failOver(ctx context.Context, f *Injector) (victim *fleet.Member, err error) {
	p := &pair{f: f}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	if err := p.fallBehind(ctx); err != nil {
		return nil, err
	}
	if f.Rand.IntN(2) == 0 {
		err = p.splitBrain(ctx)
	} else {
		err = p.succession(ctx)
	}
	if err != nil {
		return nil, err
	}
	return nil, p.reunited(ctx)
}

// The number of a write's lock says which client wrote it, and when. It is this
// number for the early key, and the next one for the late key.
const (
	writtenBefore = 2 * (1 + iota) // by the holder
	writtenAlone                   // by the holder, after the standby fell behind
	writtenLate                    // the same, under the lock whose token it drew after the failover
	writtenNext                    // by the next holder
	writtenStale                   // by the holder, when there is a next one: never
	writtenAgain                   // by the holder, who has got the lock again
)

// fallBehind makes the standby miss what is written from then on.
func (p *pair) fallBehind(ctx context.Context) error {
	if err := p.oldData.write(ctx, p.early, writtenBefore); err != nil {
		return err
	}
	if err := p.replicated(ctx); err != nil {
		return err
	}
	var sender int
	if err := p.oldData.db.QueryRowContext(ctx, "SELECT pid FROM pg_stat_replication").Scan(&sender); err != nil {
		return err
	}
	if err := p.first.FreezeBackend(sender); err != nil {
		return err
	}
	// The old primary's log is ahead of the new one's for the rest of this.
	if _, err := p.oldData.db.ExecContext(ctx, "SELECT pg_logical_emit_message(false, 'ahead', repeat('x', 4000000))"); err != nil {
		return err
	}
	return p.oldData.write(ctx, p.early, writtenAlone)
}

// splitBrain leaves the old primary alive, with the holder's locks on it. There
// the locks have no guarantee, and the fence has.
func (p *pair) splitBrain(ctx context.Context) error {
	if err := p.second.Promote(); err != nil {
		return err
	}
	if err := p.oldData.write(ctx, p.late, writtenLate+1); err != nil {
		return err
	}
	if err := p.succeed(ctx); err != nil {
		return err
	}
	if err := p.ahead(ctx); err != nil {
		return err
	}
	if err := p.refuseHolder(ctx); err != nil {
		return err
	}
	if err := p.first.Kill(); err != nil {
		return err
	}
	if err := p.tellHolder(ctx); err != nil {
		return err
	}
	return p.refuseHolder(ctx)
}

// succession fails over from a dead primary.
func (p *pair) succession(ctx context.Context) error {
	if err := p.first.Kill(); err != nil {
		return err
	}
	if err := p.second.Promote(); err != nil {
		return err
	}
	if err := p.tellHolder(ctx); err != nil {
		return err
	}
	if err := p.refuseHolder(ctx); err != nil { // although no other holder has been fenced since
		return err
	}
	if err := p.succeed(ctx); err != nil {
		return err
	}
	return p.refuseHolder(ctx)
}

// succeed has the next client take the holder's keys on the new primary, and
// write.
func (p *pair) succeed(ctx context.Context) (err error) {
	if p.next, err = p.f.open(ctx, p.second.DSN("")); err != nil {
		return err
	}
	for i, lock := range p.holders() {
		next, err := p.next.TryLock(ctx, lock.Key())
		if err != nil {
			return fmt.Errorf("on the new primary: %w", err)
		}
		if lock.Err() == nil && next.Err() == nil {
			p.f.outside++
		}
		if err := p.newData.write(ctx, next, writtenNext+int64(i)); err != nil {
			return err
		}
		p.nexts = append(p.nexts, next)
	}
	return nil
}

// ahead checks that the holder's token has the greater position in the log, so
// that only the timeline tells the two tokens apart.
func (p *pair) ahead(ctx context.Context) error {
	var of [2]int64
	for i, data := range []*store{p.oldData, p.newData} {
		err := data.db.QueryRowContext(ctx, "SELECT lsn FROM latchkey_fence WHERE key_space = 0 AND key_id = $1", p.late.Key().Int64()).Scan(&of[i])
		if err != nil {
			return err
		}
	}
	if of[0] <= of[1] {
		return fmt.Errorf("the old primary is at %d, not ahead of the new one at %d", of[0], of[1])
	}
	return nil
}

// refuseHolder checks that the fence refuses the holder's writes on the new
// primary.
func (p *pair) refuseHolder(ctx context.Context) error {
	var err error
	for i, lock := range p.holders() {
		err = errors.Join(err, mustRefuse(p.newData.write(ctx, lock, writtenStale+int64(i))))
	}
	return err
}

func (p *pair) tellHolder(ctx context.Context) error {
	var err error
	for _, lock := range p.holders() {
		err = errors.Join(err, p.f.told(ctx, lock))
	}
	return err
}

// reunited leads the holder to the new primary and checks that it is served
// there. It also checks what is stored, and that something was lost: otherwise
// the standby was not behind.
func (p *pair) reunited(ctx context.Context) error {
	if err := p.link.Switch(p.secondHost); err != nil {
		return err
	}
	for _, next := range p.nexts {
		if err := errors.Join(held(ctx, p.next, next.Key()), next.Unlock()); err != nil {
			return err
		}
	}
	if err := p.serveHolder(ctx); err != nil {
		return err
	}
	rows, err := p.newData.stored(ctx)
	if err != nil {
		return err
	}
	return errors.Join(check.Tokens(rows), kinds(rows))
}

// kinds checks how many writes of each kind were stored.
func kinds(rows []check.Stored) error {
	count := map[int64]int{}
	for _, row := range rows {
		count[row.Lock&^1]++
	}
	want := map[int64]int{writtenBefore: 1, writtenNext: 2, writtenAgain: 2}
	if !maps.Equal(count, want) {
		return violation("writes on the new primary by kind: %v, want %v", count, want)
	}
	return nil
}

// serveHolder waits until the holder's Session has found the new primary, and
// writes there.
func (p *pair) serveHolder(ctx context.Context) error {
	for i, lost := range p.holders() {
		limited, cancel := context.WithTimeout(ctx, recoverWithin)
		lock, err := p.holder.Lock(limited, lost.Key())
		cancel()
		if err != nil {
			return violation("no service after the failover: %w", err)
		}
		if err := errors.Join(p.newData.write(ctx, lock, writtenAgain+int64(i)), lock.Unlock()); err != nil {
			return err
		}
	}
	return nil
}

// holders is the holder's locks from before the failover.
func (p *pair) holders() []*sqllock.Lock { return []*sqllock.Lock{p.early, p.late} }
