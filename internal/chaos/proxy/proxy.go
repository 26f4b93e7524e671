// Package proxy is the network between one process and its database, which can
// fail in the ways that networks do.
//
//	p, err := proxy.Start(server, false)
//	fault := p.Swallow(proxy.ToClient) // a cable that is cut in one direction
//	…
//	fault.Mend()
package proxy

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Direction is one of the two of a connection.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// A Proxy listens on an address of its own and leads to a server. Faults are
// made and mended by one goroutine at a time.
type Proxy struct {
	abrupt   bool
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex // protects what follows, and the fields of faults and pairs that say so
	server string
	pairs  map[*pair]bool
	faults []*Fault            // in force
	lose   chan history.Moment // has the moment at which the next reply was lost; nil: none is to be lost
	closed bool
}

// Start starts a proxy to server, a host:port. An abrupt one ends each connection
// with RST, and so loses what was not delivered yet; the other says goodbye (FIN).
func Start(server string, abrupt bool) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{abrupt: abrupt, listener: listener, server: server, pairs: map[*pair]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr is where p listens, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Switch ends all connections and leads to another server from now on, as a
// name does that was moved.
func (p *Proxy) Switch(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
	p.endAllLocked()
}

// Close ends p and its connections.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.endAllLocked()
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Proxy) endAllLocked() {
	for c := range p.pairs {
		p.endLocked(c)
	}
}

// A pair is a connection of a client and the one to the server that goes with it.
type pair struct {
	client, server net.Conn
	ended          chan struct{}
	muted          bool // the server's side has ended, and the client does not know; the Proxy's mu protects it
}

// accept carries connections until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.carry(client) })
	}
}

func (p *Proxy) carry(client net.Conn) {
	p.mu.Lock()
	to := p.server
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", to, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	c := &pair{client: client, server: server, ended: make(chan struct{})}
	p.mu.Lock()
	p.pairs[c] = true
	if p.closed || p.server != to {
		p.endLocked(c)
	}
	p.mu.Unlock()
	var lines sync.WaitGroup
	lines.Go(func() { p.line(c, ToServer, client, server) })
	lines.Go(func() { p.line(c, ToClient, server, client) })
	lines.Wait()
	p.end(c)
}

// A chunk is bytes that came at some moment. Without bytes it is the end of the
// connection in its direction.
type chunk struct {
	data []byte
	at   time.Time
}

// line carries what comes from one side to the other.
func (p *Proxy) line(c *pair, d Direction, from, to net.Conn) {
	chunks := make(chan chunk, 1024)
	p.running.Go(func() {
		defer close(chunks)
		for buffer := make([]byte, 32<<10); ; {
			n, err := from.Read(buffer)
			if err != nil {
				n = 0
			}
			select {
			case chunks <- chunk{slices.Clone(buffer[:n]), time.Now()}:
			case <-c.ended:
				return
			}
			if n == 0 {
				return
			}
		}
	})
	for k := range chunks {
		switch {
		case p.suffer(c, d, k):
			continue
		case len(k.data) == 0, d == ToClient && p.losesReply():
			p.end(c)
			return
		}
		_, _ = to.Write(k.data) // if to has ended, the line in the other direction knows
	}
}

// suffer has k meet the faults in its direction. It reports whether k is gone.
func (p *Proxy) suffer(c *pair, d Direction, k chunk) (gone bool) {
	p.mu.Lock()
	faults := slices.Clone(p.faults)
	gone = c.muted
	for _, f := range faults {
		if f.loses && f.in(d) {
			f.victims, gone = append(f.victims, c), true
		}
	}
	p.mu.Unlock()
	for _, f := range faults {
		if !gone && f.delay != nil && f.in(d) {
			f.delay(c, k.at)
		}
	}
	return gone
}

// end ends both sides of c.
func (p *Proxy) end(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.muted {
		p.endLocked(c)
	}
}

func (p *Proxy) endLocked(c *pair) {
	if !p.pairs[c] {
		return
	}
	delete(p.pairs, c)
	close(c.ended)
	for _, side := range []net.Conn{c.client, c.server} {
		p.shut(side)
	}
}

func (p *Proxy) shut(side net.Conn) {
	if tcp, ok := side.(*net.TCPConn); ok && p.abrupt {
		_ = tcp.SetLinger(0)
	}
	_ = side.Close()
}

// A Fault is something that is wrong with the network until Mend.
type Fault struct {
	proxy      *Proxy
	directions []Direction
	loses      bool                        // what is sent is lost
	delay      func(c *pair, at time.Time) // waits, with a chunk that came at some moment; nil: nothing is late
	mended     chan struct{}
	victims    []*pair // connections that end when it is mended; the Proxy's mu protects it
}

func (f *Fault) in(d Direction) bool { return slices.Contains(f.directions, d) }

func (p *Proxy) fault(f *Fault, directions ...Direction) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.proxy, f.directions, f.mended = p, directions, make(chan struct{})
	p.faults = append(p.faults, f)
	return f
}

// Mend ends the fault. A connection that has lost something ends, too: TCP would
// either deliver it then, or give the connection up.
func (f *Fault) Mend() {
	p := f.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = slices.DeleteFunc(p.faults, func(g *Fault) bool { return g == f })
	close(f.mended)
	for _, c := range f.victims {
		p.endLocked(c)
	}
}

// wait waits until when, or until the fault is mended or c has ended.
func (f *Fault) wait(c *pair, when <-chan time.Time) {
	select {
	case <-when:
	case <-f.mended:
	case <-c.ended:
	}
}

// Swallow loses whatever is sent in direction d, the end of a connection
// included.
func (p *Proxy) Swallow(d Direction) *Fault { return p.fault(&Fault{loses: true}, d) }

// Hold keeps everything back, in both directions, until it is mended: a link
// that was down, and lost nothing.
func (p *Proxy) Hold() *Fault {
	f := new(Fault)
	f.delay = func(c *pair, _ time.Time) { f.wait(c, nil) }
	return p.fault(f, ToServer, ToClient)
}

// Latency delays what comes from the server by about d, give or take jitter.
func (p *Proxy) Latency(d, jitter time.Duration) *Fault {
	f := new(Fault)
	f.delay = func(c *pair, at time.Time) {
		late := d - jitter + time.Duration(rand.Int64N(int64(2*jitter)+1))
		f.wait(c, time.After(late-time.Since(at)))
	}
	return p.fault(f, ToClient)
}

// HalfOpen ends the connections that there are on the server's side, and leaves
// the client's open and silent until it is mended. New ones are not affected.
func (p *Proxy) HalfOpen() *Fault {
	f := p.fault(new(Fault))
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		c.muted = true
		p.shut(c.server)
		f.victims = append(f.victims, c)
	}
	return f
}

// Sever ends the connections that there are, with RST if p is abrupt. New ones
// are not affected.
func (p *Proxy) Sever() *Fault {
	p.mu.Lock()
	p.endAllLocked()
	p.mu.Unlock()
	return p.fault(new(Fault))
}

// LoseReply has the next reply of the server lost, and its connection ended. The
// channel has the moment at which that happened.
func (p *Proxy) LoseReply() (lost <-chan history.Moment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = make(chan history.Moment, 1)
	return p.lose
}

// Spare ends LoseReply, if it has not happened yet.
func (p *Proxy) Spare() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = nil
}

// losesReply reports whether a reply that has come is lost.
func (p *Proxy) losesReply() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lose == nil {
		return false
	}
	p.lose <- history.Now()
	p.lose = nil
	return true
}
