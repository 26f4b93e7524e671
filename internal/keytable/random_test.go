package keytable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A database grants keys to owners. It is the truth that tables are compared
// with.
type database struct {
	mu     sync.Mutex
	holder map[keytable.ID]any
}

// A process is a table, and a goroutine that sends its batches.
type process struct {
	t       *testing.T
	table   *keytable.Table
	db      *database
	owner   *keytable.Owner
	wake    chan struct{}
	delay   func() time.Duration
	batches int
	denied  int                    // keys that batches have found held
	keys    int                    // most of a batch
	limit   func(*keytable.Limits) // changes those of the next batch; nil: it does not
}

type holder struct {
	hold keytable.Hold
	name string
}

func (*holder) EndContexts(keytable.End) {}
func (*holder) CallHooks(keytable.End)   {}
func (h *holder) Name() string           { return h.name }

func newHold() *keytable.Hold {
	h := new(holder)
	h.hold.Holder = h
	return &h.hold
}

func now() time.Duration { return time.Duration(time.Now().UnixNano()) }

func newProcess(t *testing.T, db *database, delay func() time.Duration, keys int) *process {
	p := &process{t: t, db: db, owner: &keytable.Owner{}, wake: make(chan struct{}, 1), delay: delay, keys: keys}
	p.table = keytable.New(keytable.Config{
		Wake: func() {
			select {
			case p.wake <- struct{}{}:
			default:
			}
		},
		Now:      now,
		NewHold:  newHold,
		HandOver: time.Second, YieldFor: 60 * time.Millisecond,
	})
	return p
}

// run sends batches until ctx ends.
func (p *process) run(ctx context.Context) {
	var b keytable.Batch
	limits := keytable.Limits{Keys: p.keys, Grants: 1 << 20, Most: 1 << 20}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-p.wake:
		case <-poll.C:
			p.table.Poll()
		case <-ctx.Done():
			return
		}
		for {
			if p.limit != nil {
				p.limit(&limits)
			}
			if !p.table.Prepare(p.owner, limits, &b) {
				break
			}
			p.batches++
			if len(b.Stacks) == 0 && b.Brings() > limits.Grants {
				p.t.Errorf("a batch may bring %d keys, with room for %d", b.Brings(), limits.Grants)
			}
			if b.Size() > p.keys {
				p.t.Errorf("a batch of %d keys", b.Size())
			}
			if !keytable.Invariant(p.table) {
				p.t.Error("a group is in two places")
			}
			time.Sleep(p.delay())
			p.denied += p.db.carryOut(p.t, p.owner, &b)
			time.Sleep(p.delay())
			p.table.Complete(p.owner, &b, now())
		}
	}
}

// carryOut is the statement for b.
func (db *database) carryOut(t *testing.T, o *keytable.Owner, b *keytable.Batch) (denied int) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, k := range b.Releases {
		if db.holder[k.ID()] != o {
			t.Errorf("key %v is given back, and its holder is another", k.ID())
		}
		delete(db.holder, k.ID())
	}
	try := func(k *keytable.State) bool {
		if db.holder[k.ID()] == any(o) {
			t.Errorf("key %v is tried, and held already", k.ID())
		}
		if db.holder[k.ID()] != nil {
			denied++
			return false
		}
		db.holder[k.ID()] = o
		return true
	}
	for i := range b.Looks {
		l := &b.Looks[i]
		for j, k := range l.Keys {
			if len(l.Won) == l.Want {
				break
			}
			if try(k) {
				l.Won = append(l.Won, j)
			}
		}
	}
	for i := range b.Stacks {
		s := &b.Stacks[i]
		s.Failed = -1
		for level, keys := range s.Levels {
			won := -1
			for j, k := range keys {
				if try(k) {
					won = j
					break
				}
			}
			if won < 0 {
				s.Failed = level
				for before, w := range s.Won {
					delete(db.holder, s.Levels[before][w].ID())
				}
				break
			}
			s.Won = append(s.Won, won)
		}
	}
	return denied
}

func ids(space uint64, from, n int) (all []keytable.ID) {
	for i := range n {
		all = append(all, keytable.ID{Space: space, Number: int64(from + i)})
	}
	return all
}

func keysOf(ids []keytable.ID) keytable.Keys {
	return keytable.Keys{N: len(ids), At: func(i int) keytable.ID { return ids[i] }}
}

var errFull = errors.New("the database has no room")

// Processes with random callers share a database, which has little room for
// some. No key is held twice, every call ends, and nothing is left.
func TestRandom(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { random(t, seed) })
		})
	}
}

func random(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	draw := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
	delay := func() time.Duration { return time.Duration(draw(2000)) * time.Microsecond }
	db := &database{holder: make(map[keytable.ID]any)}
	ctx, cancel := context.WithCancel(t.Context())
	var runs, callers sync.WaitGroup
	held := make(map[keytable.ID]string)
	take := func(h *keytable.Hold, who string) {
		mu.Lock()
		defer mu.Unlock()
		if other := held[h.ID()]; other != "" {
			t.Errorf("%v is held by %s and %s", h.ID(), other, who)
		}
		held[h.ID()] = who
	}
	var processes []*process
	for range 1 + draw(3) {
		p := newProcess(t, db, delay, 3+draw(40))
		if draw(2) == 0 {
			p.limit = func(l *keytable.Limits) {
				if l.Grants, l.Stack, l.Beyond = draw(4), 1<<20, nil; draw(4) == 0 {
					l.Beyond = errFull
				}
			}
		}
		processes = append(processes, p)
		runs.Go(func() { p.run(ctx) })
	}
	sizes := [3]int{1 + draw(3), 2 + draw(6), 1 + draw(20)}
	for i, p := range processes {
		for c := range 1 + draw(12) {
			callers.Go(func() {
				who := fmt.Sprint(i, "/", c)
				for range 10 + draw(20) {
					callCtx, end := context.WithTimeout(ctx, time.Duration(1+draw(300))*time.Millisecond)
					w := keytable.Want{Waits: draw(3) == 0}
					var holds []*keytable.Hold
					var err error
					switch draw(4) {
					case 0:
						var h *keytable.Hold
						h, err = p.table.Acquire(callCtx, w, ids(0, draw(4), 1)[0])
						holds = append(holds, h)
					case 1, 2:
						var h *keytable.Hold
						from := draw(2) * 2
						keys := ids(0, from, sizes[1])
						if draw(2) == 0 {
							keys = ids(1, 0, sizes[2])
						}
						h, err = p.table.AcquireAny(callCtx, w, keysOf(keys))
						holds = append(holds, h)
					case 3:
						w.Waits = false
						levels := [][]keytable.ID{ids(0, 100+draw(3), 1), ids(0, 0, sizes[1]), ids(1, 0, sizes[2])}
						var each []keytable.Keys
						for _, ids := range levels[draw(2):] {
							each = append(each, keysOf(ids))
						}
						holds, err = p.table.AcquireEach(callCtx, w, each)
					}
					end()
					if err != nil {
						if !errors.Is(err, keytable.ErrHeld) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, errFull) {
							t.Errorf("%v", err)
						}
						time.Sleep(delay())
						continue
					}
					for _, h := range holds {
						take(h, who)
					}
					time.Sleep(delay() * time.Duration(draw(10)))
					mu.Lock()
					for _, h := range holds {
						h.End(keytable.Released)
						delete(held, h.ID())
					}
					mu.Unlock()
					if err := p.table.Release(holds...); err != nil {
						t.Errorf("release: %v", err)
					}
				}
			})
		}
	}
	callers.Wait()
	time.Sleep(time.Second)
	synctest.Wait()
	db.mu.Lock()
	if len(db.holder) > 0 {
		t.Errorf("%d keys are left in the database", len(db.holder))
	}
	db.mu.Unlock()
	for _, p := range processes {
		if n := keytable.Len(p.table); n != 0 {
			t.Errorf("%d states are left in a table", n)
		}
	}
	cancel()
	runs.Wait()
}
