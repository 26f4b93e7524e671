//go:build linux

package cluster

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The observer sees that a node accepts writes, and which Sessions it has: of
// each driver, by the name in its DSN.
func TestObserver(t *testing.T) {
	u, err := url.Parse(pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	l, done := &Log{}, make(chan struct{})
	go func() {
		o := &observer{dsn: u.String()}
		l.watch(ctx, "node", o.look)
		o.close(t.Context())
		close(done)
	}()
	defer func() {
		stop()
		<-done
	}()
	seen := func(client string) (last *Sighting) {
		for _, w := range l.seen() {
			if w.Client == client && w.Node == "node" {
				last = &w
			}
		}
		return last
	}
	lockertest.Eventually(t, "the node is seen", func() bool { return seen("") != nil })
	for i, driver := range pgtest.Drivers() {
		name := "process-" + string(rune('1'+i))
		dsn := "host=" + u.Hostname() + " port=" + u.Port() + " user=" + u.User.Username() + " dbname=" + strings.TrimPrefix(u.Path, "/") + " sslmode=disable"
		db, err := sql.Open(driver, dsn+" application_name="+name)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		locks, err := sqllock.Open(ctx, db)
		if err != nil {
			t.Fatal(err)
		}
		lockertest.Eventually(t, "its Session is seen", func() bool { return seen(name+" latchkey") != nil })
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		lockertest.Eventually(t, "its Session is gone", func() bool { return seen(name+" latchkey").Gone != 0 })
		if w := seen(name + " latchkey"); w.Before == 0 || w.Before >= w.From || w.Before >= w.To || w.To >= w.Gone || w.From >= w.Gone {
			t.Errorf("the session was seen %+v", w)
		}
		if w := seen(""); w.Gone != 0 {
			t.Errorf("the server ended: %+v", w)
		}
	}
}

// seen is what was seen so far.
func (l *Log) seen() []Sighting {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.All)
}

// A look ends what it does not find, and a server that was started anew is another
// one.
func TestNote(t *testing.T) {
	l := &Log{}
	last := l.note("a", nil, []found{{id: "1"}, {"x", "1 7"}}, 0, 10, 11)
	last = l.note("a", last, []found{{id: "1"}, {"x", "1 8"}}, 10, 20, 21)
	last = l.note("a", last, []found{{id: "2"}}, 20, 30, 35)
	last = l.note("a", last, nil, 30, 40, 41)
	l.note("a", last, []found{{id: "2"}}, 40, 60, 61)
	want := []Sighting{
		{Node: "a", From: 11, To: 20, Gone: 35},
		{Node: "a", Client: "x", From: 11, To: 10, Gone: 21},
		{Node: "a", Client: "x", Before: 10, From: 21, To: 20, Gone: 35},
		{Node: "a", Before: 20, From: 35, To: 30, Gone: 41},
		{Node: "a", Before: 40, From: 61, To: 60},
	}
	if got := l.seen(); !reflect.DeepEqual(got, want) || l.Blind != 20 {
		t.Errorf("blind for %v, want 20 ns; got  %+v\nwant %+v", l.Blind, got, want)
	}
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
	ctx, stop := context.WithCancel(t.Context())
	looks := []error{nil, errs["silent"], nil, errs["refused"], nil}
	l := &Log{}
	l.watch(ctx, "a", func(context.Context) ([]found, error) {
		err := looks[0]
		if looks = looks[1:]; len(looks) == 0 {
			stop()
		}
		if err != nil {
			return nil, err
		}
		return []found{{id: "1"}}, nil
	})
	all := l.seen()
	if len(all) != 2 || all[0].From >= all[0].To || all[0].To >= all[0].Gone || all[1].Before < all[0].To || all[1].Until() != Never {
		t.Errorf("%+v", all)
	}
}
