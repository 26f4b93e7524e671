package keytable

// A reply is what a Release waits for: the result of its keys. Once its token is
// in done nothing is written to it any more, so the caller reads it without the
// table's mu. It is reused only after all results have come.
type reply struct {
	arrival call
	left    int           // keys whose results are to come
	err     error         // of the first key that has one
	expired bool          // the caller does not wait for what is left
	done    chan struct{} // holds a token when the last one has come, or it has expired
}

// Release gives the keys of holds back, all in one statement, and waits for
// that, or for an Expire. Each of holds has ended as Released, and is released
// once. It returns the error of the first hold that has one:
//   - nil: another caller has the key, or the source has given it back.
//   - ErrLost: it was lost before.
//   - The error of Expire. The source gives the key back later.
func (t *Table) Release(holds ...*Hold) error {
	r := t.replies.Get().(*reply)
	t.mu.Lock()
	for _, h := range holds {
		t.release(h, r)
	}
	waits := r.left > 0
	if waits {
		r.arrival.reply = r
		t.arrive(&r.arrival)
	}
	t.unlock()
	if waits {
		<-r.done
	}
	err := r.err
	if !r.expired {
		r.err = nil
		t.replies.Put(r)
	}
	return err
}

// release takes h off its key, which goes to the next caller or back. The result
// is in r, or comes there.
func (t *Table) release(h *Hold, r *reply) {
	k := h.state
	if !k.holds(h) {
		r.err = ErrLost
		return
	}
	k.hold = nil
	if delete(k.readers, h); len(k.readers) > 0 {
		return
	}
	if next := k.nextInLine(); next != nil && t.mayPass(k) {
		k.acquired = t.config.Now()
		t.grant(k, next)
		return
	}
	t.giveBack(k)
	if !t.config.AsyncUnlock {
		k.reply = r
		r.left++
	}
}

// giveBack has the source give k back.
func (t *Table) giveBack(k *State) {
	t.turn(k, releasing)
	k.owner.releases = append(k.owner.releases, k)
	if k.owner.Wake != nil {
		k.owner.Wake()
	} else {
		t.queued()
	}
}

// answer completes the Release that waits for k, if one does.
func (t *Table) answer(k *State, err error) {
	r := k.reply
	k.reply = nil
	if r == nil || r.expired {
		return
	}
	if r.err == nil {
		r.err = err
	}
	if r.left--; r.left == 0 {
		t.arrivals.remove(&r.arrival)
		t.wake(r.done)
	}
}

// expire ends the wait for r with err.
func (t *Table) expire(r *reply, err error) {
	t.arrivals.remove(&r.arrival)
	r.expired, r.err = true, err
	t.wake(r.done)
}

// mustYield reports whether callers wait for k, and this process has kept it for
// as long as it may.
func (t *Table) mustYield(k *State) bool {
	return k.waits > 0 && t.config.Now()-k.since >= t.config.HandOver
}

// freed notes that this process does not have k any more: it was given back
// (nil), or lost.
//
// If this process has kept the key for as long as it may, and has callers that
// wait, it rests, so that another process gets it.
func (t *Table) freed(k *State, err error) {
	t.held.Add(-1)
	k.owner.held.Add(-1)
	t.answer(k, err)
	k.owner, k.hold, k.readers = nil, nil, nil
	switch {
	case err == nil && t.mustYield(k):
		k.since, k.rests = 0, t.config.Now()+t.config.YieldFor
	case err != nil || k.waits == 0:
		k.since = 0
	}
	t.turn(k, idle)
}
