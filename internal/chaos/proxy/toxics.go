package proxy

import (
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

// trickle passes on one byte in a millisecond.
type trickle struct{}

func (*trickle) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
			if !drip(stub, chunk) {
				return
			}
		}
	}
}

// drip passes chunk on byte by byte, and the rest at once when it is
// interrupted: then it reports false.
func drip(stub *toxics.ToxicStub, chunk *stream.StreamChunk) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := range chunk.Data {
		select {
		case <-stub.Interrupt:
			stub.Output <- &stream.StreamChunk{Data: chunk.Data[i:], Timestamp: chunk.Timestamp}
			return false
		case <-tick.C:
			stub.Output <- &stream.StreamChunk{Data: chunk.Data[i : i+1], Timestamp: chunk.Timestamp}
		}
	}
	return true
}
