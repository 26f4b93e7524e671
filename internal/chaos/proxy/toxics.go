package proxy

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// A toxic's Pipe carries chunks from stub.Input to stub.Output until it is
// interrupted or, on a nil chunk, the connection has ended in its direction. One
// that does not pass the end on leaves that to toxiproxy, which sees it when
// the toxic is removed.

// swallow loses everything. A connection that has lost something ends when the
// fault is mended: TCP would either deliver it then, or give the connection up.
type swallow struct{}

// NewState is whether a connection has lost something.
func (*swallow) NewState() any { return new(atomic.Bool) }

func (*swallow) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil { // the end is lost, too
				<-stub.Interrupt
				return
			}
			stub.State.(*atomic.Bool).Store(true)
		}
	}
}

// Cleanup is called when the fault is mended.
func (*swallow) Cleanup(stub *toxics.ToxicStub) {
	if stub.State.(*atomic.Bool).Load() {
		stub.Close()
		go drain(stub)
	}
}

// hold reads nothing, so that all there is waits in buffers.
type hold struct{}

func (*hold) Pipe(stub *toxics.ToxicStub) { <-stub.Interrupt }

// existing tells the connections that were there when a fault came from those
// that began later.
type existing struct{ past atomic.Bool }

// NewState is asked for, for each connection that is there, before the fault has
// come, and then when a connection begins: whether the fault passes it over.
func (e *existing) NewState() any { return e.past.Load() }

// spared reports whether the connection of stub began after the fault had come.
func spared(stub *toxics.ToxicStub) bool { return stub.State.(bool) }

// cut ends the existing connections in its direction at once.
type cut struct{ existing }

func (*cut) Pipe(stub *toxics.ToxicStub) {
	if spared(stub) {
		new(toxics.NoopToxic).Pipe(stub)
		return
	}
	end(stub)
}

// end ends the connection in stub's direction.
func end(stub *toxics.ToxicStub) {
	stub.Close()
	drain(stub)
}

// drain reads what still comes, so that no sender is stuck with it.
func drain(stub *toxics.ToxicStub) {
	for range stub.Input {
		continue
	}
}

// mute loses everything of the existing connections, for good: theirs is the
// silence of a connection that only one side knows to have ended.
type mute struct{ existing }

func (*mute) Pipe(stub *toxics.ToxicStub) {
	if spared(stub) {
		new(toxics.NoopToxic).Pipe(stub)
		return
	}
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				<-stub.Interrupt
				return
			}
		}
	}
}

// late passes on everything some time after it came, in its order. Toxiproxy's
// own toxic for that waits for 5 s with each chunk, when it is removed, if the
// client's end is gone; and no connection can begin meanwhile.
type late struct {
	flush
	Latency int64 `json:"latency"` // milliseconds
	Jitter  int64 `json:"jitter"`  // milliseconds, more or less
}

// GetBufferSize is how many chunks may be on their way.
func (*late) GetBufferSize() int { return 1024 }

func (t *late) Pipe(stub *toxics.ToxicStub) { carry(stub, t.wait) }

// wait passes chunk on when it is time. If it is interrupted, it does so at once,
// and reports false.
func (t *late) wait(stub *toxics.ToxicStub, chunk *stream.StreamChunk) bool {
	delay := time.Duration(t.Latency-t.Jitter+rand.Int64N(2*t.Jitter+1)) * time.Millisecond
	select {
	case <-time.After(delay - time.Since(chunk.Timestamp)):
		select {
		case stub.Output <- chunk:
			return true
		case <-stub.Interrupt:
		}
	case <-stub.Interrupt:
	}
	deliver(stub, chunk)
	return false
}

// carry is a Pipe that calls pass with each chunk, until pass reports false.
func carry(stub *toxics.ToxicStub, pass func(*toxics.ToxicStub, *stream.StreamChunk) bool) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
			if !pass(stub, chunk) {
				return
			}
		}
	}
}

// flush delivers what a toxic has kept back, when its fault is mended.
type flush struct{}

// Cleanup is called when the fault is mended.
func (flush) Cleanup(stub *toxics.ToxicStub) {
	for !stub.Closed() && len(stub.Input) > 0 {
		deliver(stub, <-stub.Input)
	}
}

// deliver passes chunk on. If no reader takes it within a second, it ends the
// connection. Only a toxic with a flush may use it: toxiproxy forgets the closed
// connection when Cleanup returns. Until then no other fault may begin in the
// same direction.
func deliver(stub *toxics.ToxicStub, chunk *stream.StreamChunk) {
	if stub.WriteOutput(chunk, time.Second) != nil {
		stub.Close()
		go drain(stub)
	}
}

// trickle passes on one byte in a millisecond.
type trickle struct{ flush }

func (*trickle) Pipe(stub *toxics.ToxicStub) { carry(stub, drip) }

// drip passes chunk on byte by byte, and the rest at once when it is
// interrupted: then it reports false.
func drip(stub *toxics.ToxicStub, chunk *stream.StreamChunk) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := range chunk.Data {
		select {
		case <-tick.C:
			select {
			case stub.Output <- &stream.StreamChunk{Data: chunk.Data[i : i+1], Timestamp: chunk.Timestamp}:
				continue
			case <-stub.Interrupt:
			}
		case <-stub.Interrupt:
		}
		deliver(stub, &stream.StreamChunk{Data: chunk.Data[i:], Timestamp: chunk.Timestamp})
		return false
	}
	return true
}
