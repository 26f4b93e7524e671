package dbconn

import (
	"net"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/peek"
)

// A driver may still read from an idle connection. That keeps nobody from seeing
// whether it has ended.
func TestHasEndedBesideAReader(t *testing.T) {
	if !peek.Possible {
		t.Skip("this system cannot look at a socket")
	}
	server, client := tcp(t)
	reading, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	go func() {
		_ = peek.Raw(client).Read(func(uintptr) bool { // holds the read lock meanwhile
			close(reading)
			<-release
			return true
		})
	}()
	<-reading
	if ended(t, client) {
		t.Error("a connection that is open has ended")
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); !ended(t, client); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a connection that the server has closed has not ended")
		}
	}
}

// ended is hasEnded, which must not wait.
func ended(t *testing.T, socket net.Conn) bool {
	t.Helper()
	result := make(chan bool, 1)
	go func() { result <- hasEnded(socket) }()
	select {
	case r := <-result:
		return r
	case <-time.After(10 * time.Second):
		t.Fatal("hasEnded waits for the reader")
		return false
	}
}

// tcp returns both ends of a connection.
func tcp(t *testing.T) (server, client net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server, client
}
