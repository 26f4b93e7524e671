package keytable

import "sync/atomic"

// An End says how a hold has ended.
type End uint32

const (
	NotEnded End = iota
	Released
	Lost
	Closed // lost, because the table was closed
)

// A Hold is a key that a caller holds. [Config.NewHold] makes it.
type Hold struct {
	Holder Holder // set by NewHold; never changed
	Label  string // of the request; never changed

	id    ID
	state *State
	owner *Owner
	mode  Mode
	ended atomic.Uint32
}

// A Holder is told of the end of its hold. The methods are called without the
// table's mu.
type Holder interface {
	EndContexts(End)
	CallHooks(End)
	Name() string // for people; it may be called with the table locked
}

// End ends h, unless it has ended before. It reports whether it has.
func (h *Hold) End(how End) bool {
	return h.ended.CompareAndSwap(uint32(NotEnded), uint32(how))
}

// Ended returns how h has ended.
func (h *Hold) Ended() End { return End(h.ended.Load()) }

// Owner returns what holds the key in the database. It never changes.
func (h *Hold) Owner() *Owner { return h.owner }

// Mode returns how h holds its key. It never changes.
func (h *Hold) Mode() Mode { return h.mode }

// ID returns the key. It never changes.
func (h *Hold) ID() ID { return h.id }

// Ends are holds that have ended together.
type Ends []*Hold

// Announce tells the holders. All contexts end before the first hook is called.
func (ends Ends) Announce() {
	for _, h := range ends {
		h.Holder.EndContexts(h.Ended())
	}
	for _, h := range ends {
		h.Holder.CallHooks(h.Ended())
	}
}

// grant makes r the holder of k, or one of its readers. This process has the
// key.
func (t *Table) grant(k *State, r *Request) {
	t.decide(r, t.newHold(k, r), nil)
}

// newHold returns a hold of k for the caller of r.
func (t *Table) newHold(k *State, r *Request) *Hold {
	h := t.config.NewHold()
	h.id, h.state, h.owner, h.mode, h.Label = k.id, k, k.owner, k.mode, r.Label
	if k.phase != held {
		t.turn(k, held)
	}
	if k.mode == Exclusive {
		k.hold = h
		return h
	}
	if k.readers == nil {
		k.readers = make(map[*Hold]struct{})
	}
	k.readers[h] = struct{}{}
	return h
}

// holds reports whether h holds k.
func (k *State) holds(h *Hold) bool {
	if k.hold == h {
		return true
	}
	_, reads := k.readers[h]
	return reads
}

// endAll ends all holds of k, and adds those that had not ended.
func (k *State) endAll(ends Ends, how End) Ends {
	k.each(func(h *Hold) {
		if h.End(how) {
			ends = append(ends, h)
		}
	})
	k.hold, k.readers = nil, nil
	return ends
}

// each calls f for each hold of k.
func (k *State) each(f func(*Hold)) {
	if k.hold != nil {
		f(k.hold)
	}
	for h := range k.readers {
		f(h)
	}
}

// give gives k, which this process has from now on, to the request that came
// first, or to all readers in front. If no request wants it, k goes back.
func (t *Table) give(k *State) {
	r := k.nextInLine()
	if r == nil || t.closed != nil {
		t.giveBack(k)
		return
	}
	t.grant(k, r)
	if k.mode == Shared {
		t.admit(k)
	}
}

// nextInLine returns the request that gets k, which is granted in k.mode: the
// first of all lines, or nil.
func (k *State) nextInLine() *Request {
	var r *Request
	for c := k.own.line.first; c != nil && r == nil; c = c.next {
		switch {
		case c.request.Mode == k.mode:
			r = c.request
		case c.request.Waits: // later ones must not overtake it
			return nil
		}
	}
	if k.mode == Exclusive {
		for _, g := range k.groups {
			if first := g.line.first; first != nil && (r == nil || first.request.number < r.number) {
				r = first.request
			}
		}
	}
	return r
}

// joinable reports whether readers hold k, and others may join them.
func (k *State) joinable() bool { return k.phase == held && k.mode == Shared && !k.owner.expired() }

// admit makes those readers in front of the line share k, which readers hold.
func (t *Table) admit(k *State) {
	blocked := false
	k.own.line.each(func(r *Request) {
		switch {
		case r.Mode == Shared && !blocked:
			t.grant(k, r)
		case r.Waits:
			blocked = true
		}
	})
}
