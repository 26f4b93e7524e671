//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// The observer sees that a server accepts writes.
func TestObserver(t *testing.T) {
	o := &observer{dsn: pgtest.Database(t)}
	defer o.close(t.Context())
	for range 2 {
		if started, err := o.look(t.Context()); err != nil || started == "" {
			t.Errorf("%q, %v", started, err)
		}
	}
}

// A server that was started anew is another one. A look without an answer says
// nothing, and any other error is that of a server that is not there.
func TestWatch(t *testing.T) {
	looks := []struct {
		started string
		err     error
	}{{"", nil}, {"1", nil}, {"1", context.DeadlineExceeded}, {"1", nil}, {"2", nil}, {"", errors.New("refused")}, {"2", nil}, {"2", nil}}
	ctx, stop := context.WithCancel(t.Context())
	synctest.Test(t, func(t *testing.T) {
		l, n := &Log{}, 0
		l.watch(ctx, "a", func(context.Context) (string, error) {
			look := looks[n]
			if n++; n == len(looks) {
				stop()
			}
			return look.started, look.err
		})
		if len(l.All) != 3 || l.All[0].Before == 0 || l.All[0].Gone == 0 || l.All[1].Gone == 0 || l.All[1].Before < l.All[0].To || l.All[2].Until() != math.MaxInt64 {
			t.Errorf("%+v", l.All)
		}
	})
}

// A look without an answer says nothing about the server. One that was refused
// does.
func TestLookWithoutAnswer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	// A port that is bound, but not listened to, refuses connections.
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(socket)
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	own, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	refuses := fmt.Sprint("127.0.0.1:", own.(*syscall.SockaddrInet4).Port)
	errs := map[string]error{}
	for name, address := range map[string]string{"silent": silent.Addr().String(), "refused": refuses} {
		within := 100 * time.Millisecond
		if name == "refused" {
			within = 30 * time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		o := &observer{dsn: "postgres://u@" + address + "/d?sslmode=disable"}
		_, errs[name] = o.look(ctx)
		cancel()
		if errs[name] == nil || o.conn != nil {
			t.Errorf("%s: %v, connection %v", name, errs[name], o.conn)
		}
	}
	if provesNothing(errs["refused"]) || !provesNothing(errs["silent"]) {
		t.Errorf("%v", errs)
	}
}
