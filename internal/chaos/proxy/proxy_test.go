package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// What was lost is lost, and its connection with it, when the fault is mended.
func TestSwallow(t *testing.T) {
	for _, d := range []Direction{ToServer, ToClient} {
		t.Run(string(d), func(t *testing.T) {
			p, conn := start(t, newEcho(t), false)
			idle := dial(t, p)
			for _, c := range []net.Conn{conn, idle} {
				send(t, c, "before")
				expect(t, c, "before")
			}
			fault := must(t)(p.Swallow(d))
			send(t, conn, "lost")
			expectSilence(t, conn)
			mend(t, fault)
			_ = endOf(t, conn)
			send(t, idle, "after")
			expect(t, idle, "after")
		})
	}
}

// A client learns nothing of an end that was swallowed until it is mended.
func TestSwallowEnd(t *testing.T) {
	e := newEcho(t)
	p, conn := start(t, e, false)
	send(t, conn, "before")
	expect(t, conn, "before")
	fault := must(t)(p.Swallow(ToClient))
	cut := must(t)(p.Sever())
	_ = ended(t, e)
	expectSilence(t, conn)
	mend(t, cut)
	mend(t, fault)
	_ = endOf(t, conn)
}

func TestHold(t *testing.T) {
	p, conn := start(t, newEcho(t), false)
	fault := must(t)(p.Hold())
	for _, text := range []string{"one ", "two ", "three"} {
		send(t, conn, text)
	}
	expectSilence(t, conn)
	mend(t, fault)
	expect(t, conn, "one two three")
}

func TestHalfOpen(t *testing.T) {
	e := newEcho(t)
	p, conn := start(t, e, false)
	send(t, conn, "before")
	expect(t, conn, "before")
	fault := must(t)(p.HalfOpen())
	if err := ended(t, e); err != io.EOF {
		t.Errorf("the server's side ended with %v, want %v", err, io.EOF)
	}
	send(t, conn, "lost")
	expectSilence(t, conn)
	other := dial(t, p)
	send(t, other, "new")
	expect(t, other, "new")
	mend(t, fault)
	_ = endOf(t, conn)
	send(t, other, "still there")
	expect(t, other, "still there")
}

func TestSever(t *testing.T) {
	for _, abrupt := range []bool{false, true} {
		e := newEcho(t)
		p, conn := start(t, e, abrupt)
		send(t, conn, "before")
		expect(t, conn, "before")
		fault := must(t)(p.Sever())
		server, client := ended(t, e), endOf(t, conn)
		for side, err := range map[string]error{"server": server, "client": client} {
			if reset := errors.Is(err, syscall.ECONNRESET); reset != abrupt {
				t.Errorf("abrupt %v: the %s's side ended with %v", abrupt, side, err)
			}
		}
		other := dial(t, p)
		send(t, other, "new")
		expect(t, other, "new")
		mend(t, fault)
	}
}

func TestTrickle(t *testing.T) {
	p, conn := start(t, newEcho(t), false)
	fault := must(t)(p.Trickle())
	text := string(bytes.Repeat([]byte("0123456789"), 5))
	begin := time.Now()
	send(t, conn, text)
	expect(t, conn, text)
	if took := time.Since(begin); took < 45*time.Millisecond {
		t.Errorf("%d bytes came within %v", len(text), took)
	}
	send(t, conn, text)
	expect(t, conn, text[:1]) // and in the middle of it:
	mend(t, fault)
	expect(t, conn, text[1:])
}

func TestLatency(t *testing.T) {
	p, conn := start(t, newEcho(t), false)
	fault := must(t)(p.Latency(100*time.Millisecond, 50*time.Millisecond))
	begin := time.Now()
	send(t, conn, "slow")
	expect(t, conn, "slow")
	if took := time.Since(begin); took < 50*time.Millisecond {
		t.Errorf("an answer came within %v", took)
	}
	mend(t, fault)
}

// A client may end its connection while much of what is late is still on its way.
func TestLatencyOfConnectionThatHasEnded(t *testing.T) {
	const messages = 20
	e := newEcho(t)
	p, conn := start(t, e, true)
	send(t, conn, "ready")
	expect(t, conn, "ready")
	fault := must(t)(p.Latency(time.Minute, 0))
	for n := range messages { // each is a chunk of its own
		send(t, conn, "late")
		for e.echoed.Load() < int64(len("ready")+(n+1)*len("late")) {
			runtime.Gosched()
		}
	}
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	_ = ended(t, e)
	mended := make(chan error, 1)
	go func() { mended <- fault.Mend() }()
	select {
	case err := <-mended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the fault is not mended")
	}
	conn = dial(t, p)
	send(t, conn, "after")
	expect(t, conn, "after")
}

func TestSwitch(t *testing.T) {
	one, other := newEcho(t), newEcho(t)
	p, conn := start(t, one, false)
	send(t, conn, "before")
	expect(t, conn, "before")
	addr := p.Addr()
	if err := p.Switch(other.addr); err != nil {
		t.Fatal(err)
	}
	_ = endOf(t, conn)
	if p.Addr() != addr {
		t.Errorf("the proxy moved from %s to %s", addr, p.Addr())
	}
	conn = dial(t, p)
	send(t, conn, "after")
	expect(t, conn, "after")
	_ = conn.Close()
	_ = ended(t, other)
}
