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
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// The environment variables that make a proxy of this program.
const (
	envTarget = "LATCHKEY_BENCH_PROXY_TARGET"
	envDelay  = "LATCHKEY_BENCH_PROXY_DELAY"
)

// A Proxy is a running proxy.
type Proxy struct {
	Addr string // host:port to connect to

	command *exec.Cmd
	stdin   io.Closer // the proxy ends when it is closed, and so with this process
}

// Start starts a proxy in front of target, a host:port. The program must call
// [Main] before anything else.
func Start(ctx context.Context, target string, oneWay time.Duration) (*Proxy, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Proxy{command: exec.CommandContext(context.WithoutCancel(ctx), program)} //nolint:gosec // this program
	p.command.Env = append(os.Environ(), envTarget+"="+target, envDelay+"="+oneWay.String())
	p.command.Stderr = os.Stderr
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("delay: the proxy did not start: %w", err), p.Close())
	}
	p.Addr = strings.TrimSpace(line)
	return p, nil
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() error {
	return errors.Join(p.stdin.Close(), p.command.Wait())
}

// Main runs the proxy and never returns in a program that Start has started. It
// returns at once in any other.
func Main() {
	target := os.Getenv(envTarget)
	if target == "" {
		return
	}
	oneWay, err := time.ParseDuration(os.Getenv(envDelay))
	if err == nil {
		err = serve(target, oneWay, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "delay:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
