// Package delay puts a network's delay between a client and a server on the
// same machine: a TCP proxy that delivers each byte a set time after it came,
// in both directions, in order and as many as come.
//
//	func main() {
//		delay.Main() // it becomes the proxy if it was started as one
//		…
//	}
//
// The proxy is a process of its own, the same program once more, so that what
// it costs is not counted as the client's.
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
// Main first thing.
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

// Main returns at once in a program that was not started as a proxy, and never
// in one that was.
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
