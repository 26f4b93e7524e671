//go:build linux

package cluster

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"
	"time"

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
	p, done := &Primaries{}, make(chan struct{})
	go func() {
		p.watch(ctx, "node", u.String())
		close(done)
	}()
	defer func() {
		stop()
		<-done
	}()
	seen := func(client string) (last *Writable) {
		for _, w := range p.Seen() {
			if w.Client == client && w.Node == "node" {
				last = &w
			}
		}
		return last
	}
	for i, driver := range pgtest.Drivers() {
		name := "process-" + string(rune('1'+i))
		dsn := "host=" + u.Hostname() + " port=" + u.Port() + " user=" + u.User.Username() + " dbname=" + strings.TrimPrefix(u.Path, "/") + " sslmode=disable"
		db, err := sql.Open(driver, Named(dsn, name))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		locks, err := sqllock.Open(ctx, db)
		if err != nil {
			t.Fatal(err)
		}
		await(t, func() bool { return seen("") != nil && seen(name+" latchkey") != nil })
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		await(t, func() bool { return seen("").To > seen(name+" latchkey").To })
	}
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited without success")
		}
	}
}
