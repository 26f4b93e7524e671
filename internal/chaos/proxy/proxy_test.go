package proxy

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// What was lost is lost, and its connection with it, when the fault is mended.
func TestSwallow(t *testing.T) {
	for _, d := range []Direction{ToServer, ToClient} {
		t.Run(map[Direction]string{ToServer: "to the server", ToClient: "to the client"}[d], func(t *testing.T) {
			p, conn := start(t, newEcho(t), false)
			idle := dial(t, p)
			for _, c := range []net.Conn{conn, idle} {
				send(t, c, "before")
				expect(t, c, "before")
			}
			fault := p.Swallow(d)
			send(t, conn, "lost")
			expectSilence(t, conn)
			fault.Mend()
			_ = endOf(t, conn)
			send(t, idle, "after")
			expect(t, idle, "after")
		})
	}
}

func TestHold(t *testing.T) {
	p, conn := start(t, newEcho(t), false)
	fault := p.Hold()
	for _, text := range []string{"one ", "two ", "three"} {
		send(t, conn, text)
	}
	expectSilence(t, conn)
	fault.Mend()
	expect(t, conn, "one two three")
}

func TestHalfOpen(t *testing.T) {
	e := newEcho(t)
	p, conn := start(t, e, false)
	send(t, conn, "before")
	expect(t, conn, "before")
	fault := p.HalfOpen()
	if err := ended(t, e); err != io.EOF {
		t.Errorf("the server's side ended with %v, want %v", err, io.EOF)
	}
	send(t, conn, "lost")
	expectSilence(t, conn)
	other := dial(t, p)
	send(t, other, "new")
	expect(t, other, "new")
	fault.Mend()
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
		fault := p.Sever()
		server, client := ended(t, e), endOf(t, conn)
		for side, err := range map[string]error{"server": server, "client": client} {
			if reset := errors.Is(err, syscall.ECONNRESET); reset != abrupt {
				t.Errorf("abrupt %v: the %s's side ended with %v", abrupt, side, err)
			}
		}
		other := dial(t, p)
		send(t, other, "new")
		expect(t, other, "new")
		fault.Mend()
	}
}

func TestLatency(t *testing.T) {
	p, conn := start(t, newEcho(t), false)
	fault := p.Latency(100*time.Millisecond, 50*time.Millisecond)
	begin := time.Now()
	send(t, conn, "slow")
	expect(t, conn, "slow")
	if took := time.Since(begin); took < 50*time.Millisecond {
		t.Errorf("an answer came within %v", took)
	}
	fault.Mend()
}

func TestSwitch(t *testing.T) {
	one, other := newEcho(t), newEcho(t)
	p, conn := start(t, one, false)
	send(t, conn, "before")
	expect(t, conn, "before")
	addr := p.Addr()
	p.Switch(other.addr)
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

func TestLoseReply(t *testing.T) {
	p, conn := start(t, newEcho(t), false)
	p.LoseReply()
	p.Spare()
	send(t, conn, "before")
	expect(t, conn, "before")
	lost := p.LoseReply()
	send(t, conn, "lost")
	if err := endOf(t, conn); err != io.EOF {
		t.Errorf("the connection ended with %v", err)
	}
	<-lost
	conn = dial(t, p)
	send(t, conn, "after")
	expect(t, conn, "after")
}
