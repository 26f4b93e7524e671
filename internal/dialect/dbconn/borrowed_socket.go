package dbconn

import (
	"net"
	"sync"
)

// A BorrowedSocket is the socket of the connection that a Pool has borrowed, if
// it can be reached. Any goroutine may close it under a statement.
type BorrowedSocket struct {
	mu     sync.Mutex // protects the fields below
	socket net.Conn   // nil while no connection is borrowed
	spared bool
}

// set notes the socket of the connection that is borrowed now, or nil.
func (b *BorrowedSocket) set(socket net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.socket = socket
}

// Close closes the socket, so that a statement fails whose driver ignores its
// context.
func (b *BorrowedSocket) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.socket != nil && !b.spared {
		_ = b.socket.Close()
	}
}

// Spare makes Close do nothing from now on.
func (b *BorrowedSocket) Spare() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spared = true
}
