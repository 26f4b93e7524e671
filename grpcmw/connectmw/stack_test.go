package connectmw_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/latchkey-go/latchkey/grpcmw/connectmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

func all(context.Context, connectmw.Call) (string, error) { return "all", nil }

// A call gets a place on each level or none. The error names the level that is
// full.
func TestStack(t *testing.T) {
	each(t, func(t *testing.T, road int, call call, key connectmw.KeyFunc) {
		locks := sqllock.NewMemory()
		perUser, total := ratelimit.OneAtATime(locks, "user"), ratelimit.AtMost(2, locks, "total")
		w := func(ctx context.Context) error {
			if !inside.Carried(ctx, perUser, alice) || !inside.Carried(ctx, total, "all") {
				return errors.New("a lock is missing")
			}
			return nil
		}
		stack := connectmw.NewStack([]connectmw.Level{{perUser, key}, {total, all}})
		c := dial(t, handlers(w, connect.WithInterceptors(stack)), road)
		for range 3 { // each gives both places back
			if err := call(t.Context(), c, alice); err != nil {
				t.Fatal(err)
			}
		}
		for _, full := range []struct {
			limiter *ratelimit.Limiter
			id      string
			places  int
		}{{perUser, alice, 1}, {total, "all", 2}} {
			var held sqllock.Locks
			for range full.places {
				lock, err := full.limiter.Acquire(t.Context(), full.id)
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, lock)
			}
			err := call(t.Context(), c, alice)
			d, _ := read(t, err)
			if connect.CodeOf(err) != connect.CodeResourceExhausted || d.namespace != string(full.limiter.Namespace()) || d.quota != d.namespace || !strings.Contains(err.Error(), d.namespace) {
				t.Errorf("with %s full: %v with %+v", full.limiter.Namespace(), err, d)
			}
			wantNoKey(t, err)
			if err := held.Unlock(); err != nil {
				t.Error(err)
			}
		}
		if err := call(t.Context(), c, alice); err != nil { // no place was kept
			t.Error(err)
		}
	})
}

// A level that a call bypasses does not limit it. The others do. The end of the
// lock of any level ends the call, which names that level. Of two interceptors,
// the one whose lock ended the context decides.
func TestStackLevels(t *testing.T) {
	each(t, func(t *testing.T, road int, call call, key connectmw.KeyFunc) {
		bypass := func(context.Context, connectmw.Call) (string, error) { return "", connectmw.ErrBypass }
		locks, ending := sqllock.NewMemory(), sqllock.Namespace("")
		w := func(ctx context.Context) error {
			lock, _ := sqllock.FromContext(ctx, ending.Key("all"))
			lock.Cancel(ratelimit.ErrMaxHold)
			<-ctx.Done()
			return ctx.Err()
		}
		stack := connectmw.NewStack([]connectmw.Level{
			{ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrHeld}, "bypassed"), bypass},
			{ratelimit.OneAtATime(locks, "user"), key},
			{ratelimit.OneAtATime(locks, "total"), all},
		})
		c := dial(t, handlers(w, limited(ratelimit.OneAtATime(locks, "outer"), all), connect.WithInterceptors(stack)), road)
		for _, ending = range []sqllock.Namespace{"outer", "total"} {
			err := call(t.Context(), c, alice)
			if connect.CodeOf(err) != connect.CodeDeadlineExceeded || !strings.Contains(err.Error(), strconv.Quote(string(ending))) {
				t.Errorf("%v, want the end of %s", err, ending)
			}
		}
	})
}

// A rejection names the limit that the key has at the moment. A policy that
// fails is a fault of the server.
func TestPolicy(t *testing.T) {
	each(t, func(t *testing.T, road int, call call, key connectmw.KeyFunc) {
		size := 0
		l := ratelimit.AtMost(5, sqllock.NewMemory(), namespace, ratelimit.WithLimit(func(context.Context, string) int { return size }))
		var log httptesting.Logbook
		c := dial(t, handlers(nothing, limited(l, key, connectmw.WithLogger(log.Logger()))), road)
		if err := call(t.Context(), c, "ada"); connect.CodeOf(err) != connect.CodeInternal {
			t.Errorf("a limit of 0: %v", err)
		}
		log.Want(t, "a limit of 0", 1, "level=ERROR", "the policy of a limit failed", "procedure="+service)
		for _, text := range []string{"admits one call at a time", "admits 2 calls at a time"} {
			size++
			lock, err := l.Acquire(t.Context(), alice)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = lock.Unlock() }()
			if err := call(t.Context(), c, alice); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("with %d places: %v", size, err)
			}
		}
	})
}

func TestPanics(t *testing.T) {
	l, key := ratelimit.OneAtATime(sqllock.NewMemory(), namespace), connectmw.Header("User")
	for name, f := range map[string]func(){
		"no limiter":       func() { connectmw.New(nil, key) },
		"no KeyFunc":       func() { connectmw.New(l, nil) },
		"no levels":        func() { connectmw.NewStack(nil) },
		"an empty level":   func() { connectmw.NewStack([]connectmw.Level{{}}) },
		"FromContext(nil)": func() { connectmw.FromContext(nil) },
		"no header":        func() { connectmw.Header("") },
		"no field":         func() { connectmw.Field("") },
		"no parts":         func() { connectmw.Join() },
		"a nil part":       func() { connectmw.Join(key, nil) },
		"no domain":        func() { connectmw.WithErrorDomain("") },
		"no text":          func() { connectmw.WithBusyText("") },
		"no log":           func() { connectmw.WithLogger(nil) },
	} {
		t.Run(name, func(t *testing.T) { httptesting.WantPanic(t, "connectmw", "", f) })
	}
}
