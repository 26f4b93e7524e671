package proxy

import (
	"sync"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// An aim is at the reply to one request. It is shared by the toxic that sees
// requests and the one that loses the reply.
//
// It takes the next reply for the one to that request. That is right where
// only one connection of the proxy is busy, and waits for each answer, as that
// of a Session does.
type aim struct {
	protocol Protocol

	mu   sync.Mutex          // protects what follows
	kind Request             // 0: no aim
	next bool                // such a request was sent
	lost chan history.Moment // one, when the reply was lost
}

// at aims at the next request of kind.
func (a *aim) at(kind Request) <-chan history.Moment {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kind, a.next, a.lost = kind, false, make(chan history.Moment, 1)
	return a.lost
}

// sent is called with the requests in a message, before the proxy passes the
// message on.
func (a *aim) sent(carried Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kind&carried != 0 {
		a.next = true
	}
}

// hits reports whether the reply that has come is to be lost, which it then is.
func (a *aim) hits() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.next {
		return false
	}
	a.kind, a.next = 0, false
	a.lost <- history.Now()
	return true
}

// tap looks at requests on their way to the server.
type tap struct{ aim *aim }

// NewState is what a connection has said so far.
func (*tap) NewState() any { return newRequests() }

func (t *tap) Pipe(stub *toxics.ToxicStub) {
	said := stub.State.(*requests)
	carry(stub, func(stub *toxics.ToxicStub, chunk *stream.StreamChunk) bool {
		t.aim.sent(t.aim.protocol.read(said, chunk.Data))
		stub.Output <- chunk
		return true
	})
}

// lose loses the reply that is aimed at, and ends the connection.
type lose struct{ aim *aim }

func (t *lose) Pipe(stub *toxics.ToxicStub) {
	carry(stub, func(stub *toxics.ToxicStub, chunk *stream.StreamChunk) bool {
		if t.aim.hits() {
			end(stub)
			return false
		}
		stub.Output <- chunk
		return true
	})
}
