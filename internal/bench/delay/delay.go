// Package delay puts a network's delay between a client and a server on the same
// machine. It is a TCP proxy that delivers each byte a fixed time after it came,
// in both directions and in order, without a limit on the rate.
//
//	func main() {
//		delay.Main() // it becomes the proxy if it was started as one
//		…
//	}
//
// The proxy is a process of its own, the same program once more. So its
// processor time is not counted as the client's.
//
// Toxiproxy, which the fault campaign uses, cannot stand in. Its latency is a
// whole number of milliseconds. A toxic with a finer unit sleeps by a timer of
// Go, which an idle process rounds up to a millisecond. Measured on two cores,
// as the median round trip of one byte (without a proxy: 5 µs):
//
//	each way   this package   toxiproxy
//	0 ms            0.21 ms     0.07 ms
//	0.15 ms         0.38 ms     2.35 ms
//	0.5 ms          1.15 ms     2.33 ms
//	1 ms            2.24 ms     2.48 ms
//
// With 90 connections and 0.5 ms each way, this package carries 44,000 round
// trips a second, toxiproxy 33,000.
package delay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// role is that of a proxy's process.
const role = "delay proxy"

// orders say what a proxy does.
type orders struct {
	Target string // host:port
	OneWay time.Duration
}

// A Proxy is a running proxy.
type Proxy struct {
	Addr string // host:port to connect to

	process *subprocess.Process
}

// Start starts a proxy in front of target, a host:port. The program must call
// [Main] before anything else.
func Start(target string, oneWay time.Duration) (*Proxy, error) {
	process, err := subprocess.Start(role, orders{target, oneWay})
	if err != nil {
		return nil, err
	}
	p := &Proxy{process: process}
	if p.Addr, err = process.ReadLine(); err != nil {
		return nil, errors.Join(fmt.Errorf("delay: the proxy did not start: %w", err), p.Close())
	}
	return p, nil
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() error { return p.process.Stop(10 * time.Second) }

// Main runs the proxy and never returns in a program that Start has started. It
// returns at once in any other.
func Main() {
	subprocess.MainReader(role, func(stdin io.Reader, o orders) error {
		return serve(o.Target, o.OneWay, stdin, os.Stdout)
	})
}
