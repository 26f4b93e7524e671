package sqllock_test

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// A lossyProxy is a TCP proxy between a process and its server. It loses the
// bytes that a test wants it to lose. Its own kernel acknowledges the packets
// of both sides, so the server sees a client whose host is alive.
type lossyProxy struct {
	listener net.Listener
	server   string
	tasks    sync.WaitGroup

	mu        sync.Mutex // protects the fields below
	conns     map[net.Conn]struct{}
	truncate  int  // the number of bytes to lose at the end of the next write to the server
	toServer  bool // all bytes to the server are lost
	toClient  bool // all bytes to the client are lost
	closesNew bool // new connections are closed at once
	closed    bool
}

// startLossyProxy starts a proxy to the server of dsn. It returns the proxy and
// the DSN through it.
func startLossyProxy(t testing.TB, dsn string) (w *lossyProxy, through string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w = &lossyProxy{listener: listener, server: u.Host, conns: make(map[net.Conn]struct{})}
	u.Host = listener.Addr().String()
	w.tasks.Go(w.accept)
	t.Cleanup(w.close)
	return w, u.String()
}

func (w *lossyProxy) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	w.closed = true
	w.reset()
	w.mu.Unlock()
	w.tasks.Wait()
}

// change changes the proxy's faults.
func (w *lossyProxy) change(f func(*lossyProxy)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w)
}

// reset closes all connections. The caller holds w.mu, as in change.
func (w *lossyProxy) reset() {
	for c := range w.conns {
		_ = c.Close()
	}
}

func (w *lossyProxy) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.connect(client)
	}
}

func (w *lossyProxy) connect(client net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.closesNew {
		_ = client.Close()
		return
	}
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		_ = client.Close()
		return
	}
	w.conns[client], w.conns[server] = struct{}{}, struct{}{}
	l := new(lossyConn)
	w.tasks.Go(func() { w.carry(l, server, client, true) })
	w.tasks.Go(func() { w.carry(l, client, server, false) })
}

// A lossyConn is one connection through a lossyProxy. Once it has lost bytes in
// a direction, it carries nothing more in that direction, and does not pass on
// the end of the connection.
type lossyConn struct {
	mu   sync.Mutex // protects lost
	lost [2]bool    // to the server, to the client
}

func (w *lossyProxy) carry(l *lossyConn, to, from net.Conn, toServer bool) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		part := w.pass(l, buffer[:n], toServer)
		if len(part) > 0 {
			if _, err := to.Write(part); err != nil {
				_ = from.Close()
			}
		}
		if err != nil {
			if !l.isCut() {
				_ = to.Close()
			}
			return
		}
	}
}

func (l *lossyConn) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost[0] || l.lost[1]
}

// pass returns the part of a write that arrives.
func (w *lossyProxy) pass(l *lossyConn, written []byte, toServer bool) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	direction, lost := 1, w.toClient
	if toServer {
		direction, lost = 0, w.toServer
	}
	if lost && len(written) > 0 {
		l.lost[direction] = true
	}
	switch {
	case l.lost[direction]:
		return nil
	case toServer && w.truncate > 0 && len(written) > w.truncate:
		written = written[:len(written)-w.truncate]
		w.truncate, l.lost = 0, [2]bool{true, true}
	}
	return written
}
