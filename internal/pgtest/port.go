package pgtest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
)

// Ports are taken from a range below the one that Linux and macOS use for
// outgoing connections. A stopped server therefore finds its own port free when
// it starts again.
const (
	firstPort = 15000
	endPort   = 32000
)

// errPortTaken reports that another process took the port first.
var errPortTaken = errors.New("pgtest: someone else listens on the port")

// portTaken reports whether a server's log says that its port was taken.
func portTaken(log string) bool {
	return strings.Contains(log, "ddress already in use") || strings.Contains(log, "ort already in use")
}

// ports are the ports of this process's servers, running or stopped. Each is
// reserved by a UDP socket of the same number: UDP has port numbers of its own,
// so that a server can listen on the TCP port, but no other test process gets
// the number. The system ends the reservation with the process.
var ports struct {
	mu    sync.Mutex // protects taken
	taken map[int]net.PacketConn
}

// TakePort reserves a port of 127.0.0.1 on which no process listens. No other
// process that takes its ports here gets it before GivePortBack, not even while
// the server on it is stopped. A program that knows nothing of this may listen
// on the port first. The caller then tries another one.
func TakePort() (int, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(endPort-firstPort)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		reserved, err := net.ListenPacket("udp4", address)
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp4", address); err != nil || l.Close() != nil {
			reserved.Close()
			continue
		}
		if ports.taken == nil {
			ports.taken = make(map[int]net.PacketConn)
		}
		ports.taken[port] = reserved
		return port, nil
	}
	return 0, errors.New("pgtest: no free port on 127.0.0.1")
}

// GivePortBack ends the reservation of a port from TakePort. For any other port
// it does nothing.
func GivePortBack(port int) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if reserved := ports.taken[port]; reserved != nil {
		reserved.Close()
		delete(ports.taken, port)
	}
}
