package main

import (
	"context"
	"net"
	"sync"
)

// sockets are the network connections that a driver has opened.
type sockets struct {
	mu  sync.Mutex // protects all
	all []net.Conn
}

// remember returns d, and keeps each connection that it opens. The driver gets
// the connection itself, since a Session looks for the socket under it.
func (s *sockets) remember(d dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d(ctx, network, address)
		if err == nil {
			s.mu.Lock()
			s.all = append(s.all, conn)
			s.mu.Unlock()
		}
		return conn, err
	}
}

// each calls f with each connection, those included that have been closed.
func (s *sockets) each(f func(net.Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.all {
		f(conn)
	}
}
