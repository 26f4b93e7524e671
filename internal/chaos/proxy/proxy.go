// Package proxy is the network between one process and its database, which can
// fail in the ways that networks do: Shopify's toxiproxy, with toxics of our
// own.
//
//	p, err := proxy.Start(server, false)
//	fault, err := p.Swallow(proxy.ToClient) // a cable that is cut in one direction
//	…
//	err = fault.Mend()
package proxy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Direction is one of the two of a connection.
type Direction string

// The directions, by toxiproxy's names.
const (
	ToServer Direction = "upstream"
	ToClient Direction = "downstream"
)

// A Proxy listens on an address of its own and leads to a server. Faults are
// made and mended by one goroutine at a time.
type Proxy struct {
	inner *toxiproxy.Proxy
	aim   *aim
	names atomic.Int64 // of toxics: each needs its own
}

var registered sync.Once

// register tells toxiproxy of our toxics.
func register() {
	toxics.Register("swallow", new(swallow))
	toxics.Register("hold", new(hold))
	toxics.Register("cut", new(cut))
	toxics.Register("mute", new(mute))
	toxics.Register("late", new(late))
	toxics.Register("trickle", new(trickle))
	toxics.Register("tap", new(tap))
	toxics.Register("lose", new(lose))
}

// Start starts a proxy to server, a host:port. An abrupt one ends each
// connection with RST, and so loses what was not delivered yet; the other says
// goodbye (FIN).
//
// It reads the protocol of PostgreSQL, for LoseReply.
func Start(server string, abrupt bool) (*Proxy, error) { return StartFor(PostgreSQL, server, abrupt) }

// StartFor is Start to a server that speaks the given protocol.
func StartFor(protocol Protocol, server string, abrupt bool) (*Proxy, error) {
	registered.Do(register)
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{inner: toxiproxy.NewProxy(api, "process", "127.0.0.1:0", server), aim: &aim{protocol: protocol}}
	if err := p.addToxics(abrupt); err != nil {
		return nil, err
	}
	if err := p.inner.Start(); err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return p, nil
}

// addToxics adds the toxics that are always there, before the first connection.
func (p *Proxy) addToxics(abrupt bool) error {
	requests, err := p.add("tap", ToServer, 1, "")
	if err != nil {
		return err
	}
	requests.toxic.(*tap).aim = p.aim
	replies, err := p.add("lose", ToClient, 1, "")
	if err != nil {
		return err
	}
	replies.toxic.(*lose).aim = p.aim
	if !abrupt {
		return nil
	}
	// Of toxicity 0 it does nothing, but toxiproxy sees it, and has the
	// connections closed without lingering.
	for _, d := range []Direction{ToServer, ToClient} {
		if _, err := p.add("reset_peer", d, 0, ""); err != nil {
			return err
		}
	}
	return nil
}

// Addr is where p listens, host:port.
func (p *Proxy) Addr() string { return p.inner.Listen }

// Switch ends all connections and leads to another server from now on, as a
// name does that was moved.
func (p *Proxy) Switch(server string) error {
	err := p.inner.Update(&toxiproxy.Proxy{Listen: p.inner.Listen, Upstream: server, Enabled: true})
	if err != nil {
		return fmt.Errorf("proxy: switch: %w", err)
	}
	return nil
}

// Close ends p and its connections.
func (p *Proxy) Close() { p.inner.Stop() }

// A Fault is something that is wrong with the network until Mend.
type Fault struct {
	proxy *Proxy
	parts []part
}

// A part of a fault is one toxic in one direction.
type part struct {
	name  string
	toxic toxics.Toxic
}

// add adds a toxic to the connections that there are and will be. attributes is
// the inside of a JSON object.
func (p *Proxy) add(kind string, d Direction, toxicity int, attributes string) (part, error) {
	name := fmt.Sprintf("%s %d", kind, p.names.Add(1))
	w, err := p.inner.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(
		`{"type": %q, "name": %q, "stream": %q, "toxicity": %d, "attributes": {%s}}`,
		kind, name, d, toxicity, attributes)))
	if err != nil {
		return part{}, fmt.Errorf("proxy: %s: %w", kind, err)
	}
	return part{name, w.Toxic}, nil
}

// fault adds a toxic of this kind in each direction.
func (p *Proxy) fault(kind, attributes string, directions ...Direction) (*Fault, error) {
	f := &Fault{proxy: p}
	for _, d := range directions {
		added, err := p.add(kind, d, 1, attributes)
		if err != nil {
			return nil, err
		}
		f.parts = append(f.parts, added)
	}
	return f, nil
}

// Swallow loses whatever is sent in direction d, the end of a connection
// included.
func (p *Proxy) Swallow(d Direction) (*Fault, error) { return p.fault("swallow", "", d) }

// Hold keeps everything back, in both directions, until it is mended: a link
// that was down, and lost nothing.
func (p *Proxy) Hold() (*Fault, error) { return p.fault("hold", "", ToServer, ToClient) }

// Latency delays what comes from the server by about d, give or take jitter.
func (p *Proxy) Latency(d, jitter time.Duration) (*Fault, error) {
	return p.fault("late", fmt.Sprintf(`"latency": %d, "jitter": %d`, d.Milliseconds(), jitter.Milliseconds()), ToClient)
}

// Trickle delivers what comes from the server byte by byte, one in a
// millisecond.
func (p *Proxy) Trickle() (*Fault, error) { return p.fault("trickle", "", ToClient) }

// HalfOpen ends the connections that there are on the server's side, and leaves
// the client's open and silent. New ones are not affected.
func (p *Proxy) HalfOpen() (*Fault, error) {
	silent, err := p.fault("mute", "", ToClient)
	if err != nil {
		return nil, err
	}
	silent.parts[0].toxic.(*mute).past.Store(true)
	ended, err := p.Sever()
	if err != nil {
		return nil, err
	}
	silent.parts = append(silent.parts, ended.parts...)
	return silent, nil
}

// Sever ends the connections that there are, with RST if p is abrupt. New ones
// are not affected.
func (p *Proxy) Sever() (*Fault, error) {
	f, err := p.fault("cut", "", ToServer)
	if err != nil {
		return nil, err
	}
	f.parts[0].toxic.(*cut).past.Store(true)
	return f, nil
}

// Mend ends the fault.
func (f *Fault) Mend() error {
	for _, added := range f.parts {
		if err := f.proxy.inner.Toxics.RemoveToxic(context.Background(), added.name); err != nil {
			return fmt.Errorf("proxy: mend: %w", err)
		}
	}
	return nil
}

// LoseReply has the reply to the next request of this kind lost, and its
// connection ended. The channel has the moment at which that happened.
func (p *Proxy) LoseReply(kind Request) (lost <-chan history.Moment) { return p.aim.at(kind) }

// Spare ends LoseReply, if it has not happened yet.
func (p *Proxy) Spare() { p.aim.at(0) }
