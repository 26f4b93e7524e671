package session

import (
	"cmp"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// The registry has the locks and the waiting calls that are a heartbeat old. Calls
// that wait for one key and hold the same lock are counted together.
func TestWhatIsRegistered(t *testing.T) {
	withSession(t, func(t *testing.T, s *Session, _ *ageReader) {
		s.options.Heartbeat, s.registrar.process, s.waits = time.Second, 7, make(map[*Wait]struct{})
		c := s.slots[0].conn
		c.slot = s.slots[0]
		acquired := make(chan *keytable.Hold, 1)
		go func() {
			hold, _ := s.Table.Acquire(t.Context(), keytable.Want{Label: "jobs"}, number(1))
			acquired <- hold
		}()
		synctest.Wait()
		s.Table.Prepare(&c.owner, keytable.Limits{Keys: 1, Grants: 1, Most: 1}, &c.batch)
		c.batch.Looks[0].Won = first
		s.Table.Complete(&c.owner, &c.batch, Now())
		holding := []*keytable.Hold{<-acquired}
		var ends []func()
		for _, w := range []Wait{
			{Keys: map[keytable.ID]struct{}{number(2): {}}, Since: Now() - 3},
			{Keys: map[keytable.ID]struct{}{number(2): {}}, Since: Now()},
			{Keys: map[keytable.ID]struct{}{number(2): {}}, Since: Now(), Holding: holding},
			{Keys: map[keytable.ID]struct{}{number(3): {}}, Since: Now(), Holding: holding, Any: true},
			{Keys: map[keytable.ID]struct{}{number(4): {}}, Since: Now() + 1},
		} {
			ends = append(ends, s.Note(&w))
		}
		key := func(n int64) dialect.Key { return dialect.Key{ID: n} }
		lock, process := postgres.HeldKey{Key: key(1), Namespace: "jobs", Age: time.Second}, postgres.HeldKey{Key: key(7)}
		registers := func(what string, held []postgres.HeldKey, waits []postgres.WaitingKey) {
			t.Helper()
			got := c.toRegister()
			slices.SortFunc(got.Waits, func(a, b postgres.WaitingKey) int { return cmp.Or(cmp.Compare(a.ID, b.ID), a.Waiters-b.Waiters) })
			if !reflect.DeepEqual(got.Held, held) || !reflect.DeepEqual(got.Waits, waits) {
				t.Errorf("%s: %v are held and %v waited for, want %v and %v", what, got.Held, got.Waits, held, waits)
			}
		}
		time.Sleep(time.Second - 1)
		registers("before a heartbeat", []postgres.HeldKey{process}, []postgres.WaitingKey{{Key: key(2), Waiters: 1, Age: time.Second + 2}})
		time.Sleep(time.Nanosecond)
		registers("after a heartbeat", []postgres.HeldKey{lock, process}, []postgres.WaitingKey{
			{Key: key(2), Waiters: 1, Age: time.Second, Holding: key(1), Holds: true},
			{Key: key(2), Waiters: 2, Age: time.Second + 3},
			{Key: key(3), Waiters: 1, Age: time.Second},
		})
		c.slot = newSlot(s)
		registers("by a later slot", []postgres.HeldKey{lock}, nil)
		c.slot = s.slots[0]
		holding[0].End(keytable.Released)
		for i, end := range ends {
			if i != 2 {
				end()
			}
		}
		registers("of a lock that has ended", []postgres.HeldKey{lock, process}, []postgres.WaitingKey{{Key: key(2), Waiters: 1, Age: time.Second}})
		if !s.Registers() {
			t.Error("the Session has no registry")
		}
		ends[2]()
		registers("without waits", []postgres.HeldKey{lock}, nil)
	})
}

// A registering is a session that writes into a registry, or fails to.
type registering struct {
	dialect.Session
	err error
}

func (r *registering) Register(postgres.Registry, *postgres.Register) error { return r.err }

// A new connection does without the registry if a statement fails for it. A
// program that starts is told what only a person can change.
func TestEnroll(t *testing.T) {
	withSession(t, func(t *testing.T, s *Session, _ *ageReader) {
		var log strings.Builder
		s.options.Log = slog.New(slog.NewTextHandler(&log, nil))
		s.registrar.tables.Store(new(postgres.Registry))
		gone := &dialect.Failure{Kind: dialect.Gone}
		missing, locked := &dialect.Failure{Kind: dialect.Statement, State: "42P01"}, &dialect.Failure{Kind: dialect.Statement, State: "55P03"}
		for _, tt := range []struct {
			err   error
			opens bool
			want  error
			logs  int
		}{
			{nil, true, nil, 0},
			{nil, false, nil, 0},
			{gone, true, gone, 0},
			{gone, false, gone, 0},
			{missing, true, ErrConfig, 0},
			{missing, false, nil, 1},
			{locked, true, nil, 1},
		} {
			log.Reset()
			if err := s.enroll(t.Context(), &registering{err: tt.err}, tt.opens); !errors.Is(err, tt.want) || strings.Count(log.String(), registryFails) != tt.logs {
				t.Errorf("%+v: %v; the log: %s", tt, err, log.String())
			}
		}
	})
}

// A connection writes the registry with a heartbeat only. The log says when that
// begins to fail, and when it works again.
func TestRegistryErrand(t *testing.T) {
	withSession(t, func(t *testing.T, s *Session, _ *ageReader) {
		var log strings.Builder
		s.options.Log = slog.New(slog.NewTextHandler(&log, nil))
		c := s.slots[0].conn
		if c.register(true) != nil {
			t.Error("it is written before it was found")
		}
		s.registrar.tables.Store(new(postgres.Registry))
		if c.register(false) != nil {
			t.Error("it is written without a heartbeat")
		}
		fails := errors.New("simulated")
		for i, tt := range []struct {
			err  error
			says string
		}{{nil, ""}, {fails, registryFails}, {fails, ""}, {nil, "written again"}, {nil, ""}} {
			log.Reset()
			c.session = &registering{err: tt.err}
			e := c.register(true)
			if say := e.complete(e.send()); say != nil {
				say()
			}
			if text := log.String(); (text == "") != (tt.says == "") || !strings.Contains(text, tt.says) {
				t.Errorf("heartbeat %d: the log says %q, want %q", i, text, tt.says)
			}
		}
	})
}
