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
func portTaken(log string) bool { return strings.Contains(log, "ddress already in use") }

// ports are the ports of this process's servers, running or stopped.
var ports struct {
	mu    sync.Mutex // protects taken
	taken map[int]bool
}

// takePort returns a port of 127.0.0.1 on which no process listens. Another
// process may listen on it before the caller does. The caller then tries
// another one.
func takePort() (int, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	for range 100 {
		port := firstPort + rand.IntN(endPort-firstPort)
		if ports.taken[port] {
			continue
		}
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return 0, err
		}
		if ports.taken == nil {
			ports.taken = make(map[int]bool)
		}
		ports.taken[port] = true
		return port, nil
	}
	return 0, errors.New("pgtest: no free port on 127.0.0.1")
}

func givePortBack(port int) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	delete(ports.taken, port)
}
