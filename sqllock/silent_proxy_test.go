package sqllock_test

import (
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A silentProxy is a TCP proxy whose connections can fall silent.
type silentProxy struct {
	listener net.Listener
	target   string
	swallow  string // a connection falls silent when its client sends this text; "" means never
	ended    sync.WaitGroup

	mu    sync.Mutex
	up    chan struct{} // protected by mu; closed while new connections are served
	links []*silentConn // protected by mu
}

// A silentConn is one connection through a silentProxy, with its two ends.
type silentConn struct {
	client, server net.Conn
	silent         atomic.Bool // permanently, as if a device on the way had forgotten the connection
}

// startSilentProxy starts a proxy to the server of dsn. It returns the proxy
// and the DSN through it.
func startSilentProxy(t *testing.T, dsn, swallow string) (*silentProxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	n := &silentProxy{target: u.Host, swallow: swallow, up: make(chan struct{})}
	close(n.up)
	if n.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u.Host = n.listener.Addr().String()
	n.ended.Go(n.accept)
	t.Cleanup(n.close)
	return n, u.String()
}

func (n *silentProxy) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		n.ended.Go(func() { n.serve(client) })
	}
}

func (n *silentProxy) serve(client net.Conn) {
	n.mu.Lock()
	up := n.up
	n.mu.Unlock()
	<-up
	server, err := net.Dial("tcp", n.target)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &silentConn{client: client, server: server}
	n.mu.Lock()
	n.links = append(n.links, l)
	n.mu.Unlock()
	n.ended.Go(func() { l.pump(client, server, "") })
	l.pump(server, client, n.swallow)
}

// pump copies bytes until the connection falls silent. It then discards them
// and does not pass on the end of the connection.
func (l *silentConn) pump(to, from net.Conn, swallow string) {
	buffer := make([]byte, 32<<10)
	for {
		size, err := from.Read(buffer)
		if swallow != "" && strings.Contains(string(buffer[:size]), swallow) {
			l.silent.Store(true)
		}
		if l.silent.Load() {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if err == nil {
			_, err = to.Write(buffer[:size])
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

// cut makes all connections fall silent permanently. New ones wait for heal.
func (n *silentProxy) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up = make(chan struct{})
	for _, l := range n.links {
		l.silent.Store(true)
	}
}

func (n *silentProxy) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.up)
}

func (n *silentProxy) close() {
	_ = n.listener.Close()
	n.mu.Lock()
	for _, l := range n.links {
		_ = l.client.Close()
		_ = l.server.Close()
	}
	n.mu.Unlock()
	n.ended.Wait()
}
