package browser_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
	"github.com/latchkey-go/latchkey/sqllock"
)

const clientRole = "client"

// exports is the namespace of the keys that clients lock.
const exports sqllock.Namespace = "export"

// exportID returns the id whose key has number n for a client.
func exportID(n int) string { return "user-" + strconv.Itoa(n) }

// exportKey returns the key that has number n for a client.
func exportKey(n int) sqllock.Key { return exports.Key(exportID(n)) }

// clientOrders says what a client is.
type clientOrders struct {
	Driver, DSN string
	Holder      string // of WithHolder
	Heartbeat   time.Duration
}

// A step is what a client does next. It answers each with a line: "ok", or what
// went wrong.
type step struct {
	Do   string // "hold", "wait", "release" or "name"
	Key  int    // of all
	With int    // of wait: the key that the waiting caller holds
	Name string // of name
}

// A client is another process with a Session on the same database.
type client struct {
	t       *testing.T
	process *subprocess.Process
}

// startClient starts a client, which ends with the test.
func startClient(t *testing.T, o clientOrders) *client {
	t.Helper()
	process, err := subprocess.Start(clientRole, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Kill(); err != nil {
			t.Error(err)
		}
	})
	c := &client{t, process}
	c.expectOK("open a Session")
	return c
}

func (c *client) expectOK(what string) {
	c.t.Helper()
	if line, err := c.process.ReadLine(); err != nil || line != "ok" {
		c.t.Fatalf("a client cannot %s: %q, %v", what, line, err)
	}
}

func (c *client) follow(s step) {
	c.t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.process.Stdin.Write(append(text, '\n')); err != nil {
		c.t.Fatal(err)
	}
	c.expectOK(s.Do)
}

// hold makes the client hold key.
func (c *client) hold(key int) { c.t.Helper(); c.follow(step{Do: "hold", Key: key}) }

// wait makes a caller in the client that holds the key held wait for key. It
// returns when the caller has begun.
func (c *client) wait(key, held int) { c.t.Helper(); c.follow(step{Do: "wait", Key: key, With: held}) }

// release makes the client release key.
func (c *client) release(key int) { c.t.Helper(); c.follow(step{Do: "release", Key: key}) }

// name gives the lock of key a name.
func (c *client) name(key int, name string) {
	c.t.Helper()
	c.follow(step{Do: "name", Key: key, Name: name})
}

// die kills the client, as kill -9 does.
func (c *client) die() {
	c.t.Helper()
	if err := c.process.Kill(); err != nil {
		c.t.Fatal(err)
	}
}

// A holder is the state of a client in its own process.
type holder struct {
	session *sqllock.Session
	ctx     context.Context // of the waits
	waits   sync.WaitGroup
	locks   map[int]*sqllock.Lock
}

// beClient runs a client: it follows the steps that it reads.
func beClient(stdin io.Reader, o clientOrders) error {
	db, err := sql.Open(o.Driver, o.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithCancel(context.Background())
	options := []sqllock.Option{sqllock.WithRegistry(""), sqllock.WithHolder(o.Holder)}
	if o.Heartbeat > 0 {
		options = append(options, sqllock.WithHeartbeat(o.Heartbeat))
	}
	session, err := sqllock.Open(ctx, db, options...)
	if err != nil {
		cancel()
		return err
	}
	h := &holder{session: session, ctx: ctx, locks: make(map[int]*sqllock.Lock)}
	defer func() {
		cancel()
		h.waits.Wait()
		_ = session.Close()
	}()
	fmt.Println("ok")
	for lines := bufio.NewScanner(stdin); lines.Scan(); {
		var s step
		err := json.Unmarshal(lines.Bytes(), &s)
		if err == nil {
			err = h.follow(s)
		}
		if err != nil {
			fmt.Println(strconv.Quote(err.Error()))
			continue
		}
		fmt.Println("ok")
	}
	return nil
}

func (h *holder) follow(s step) error {
	switch s.Do {
	case "hold":
		return h.hold(s.Key)
	case "wait":
		held := h.locks[s.With]
		if held == nil {
			return errors.New("the key of With is not held")
		}
		// A lock that is granted after all is released when the Session closes.
		ctx, cancel := held.Bind(h.ctx)
		h.waits.Go(func() {
			defer cancel()
			_, _ = h.session.Lock(ctx, exportKey(s.Key))
		})
		return nil
	}
	lock := h.locks[s.Key]
	if lock == nil {
		return errors.New("the key is not held")
	}
	switch s.Do {
	case "name":
		lock.SetName(s.Name)
		return nil
	case "release":
		delete(h.locks, s.Key)
		return lock.Unlock()
	}
	return errors.New("unknown step")
}

func (h *holder) hold(n int) error {
	lock, err := h.session.TryLock(h.ctx, exportKey(n))
	if err != nil {
		return err
	}
	h.locks[n] = lock
	return nil
}
