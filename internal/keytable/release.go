package keytable

import "errors"

// A reply is what a Release waits for: the results of its keys. Once its token is
// in done nothing is written to it any more, so the caller reads it without the
// table's mu. It is reused only after all results have come.
type reply struct {
	arrival call
	errs    []error       // of each key; errPending: to come
	left    int           // to come
	expired bool          // the caller was told what was missing
	done    chan struct{} // holds a token when the last one has come, or it has expired
}

// errPending stands for a result that has not come.
var errPending = errors.New("keytable: pending")

// Release gives the keys of holds back, all in one statement, and waits for
// that, or for an Expire. Each of holds has ended as Released, and is released
// once. It returns an error for each:
//   - nil: another caller has the key, or the source has given it back.
//   - ErrLost: it was lost before.
//   - The error of Expire. The source gives the key back later.
//   - An error of the source, which still gives the key back later.
//
// errs is memory for the result.
func (t *Table) Release(errs []error, holds ...*Hold) []error {
	var r *reply
	t.mu.Lock()
	for _, h := range holds {
		errs = append(errs, t.release(h, &r))
	}
	if r != nil {
		r.arrival.reply = r
		t.arrive(&r.arrival)
	}
	t.unlock()
	if r == nil {
		return errs
	}
	<-r.done
	n := 0
	for i := range errs {
		if errs[i] == errPending { //nolint:errorlint // a mark
			errs[i] = r.errs[n]
			n++
		}
	}
	if !r.expired {
		r.errs = r.errs[:0]
		t.replies.Put(r)
	}
	return errs
}

// release takes h off its key, which goes to the next caller or back. If the
// result is errPending, it comes in r, which is made if need be.
func (t *Table) release(h *Hold, r **reply) error {
	k := h.state
	if !k.holds(h) {
		return ErrLost
	}
	k.hold = nil
	if delete(k.readers, h); len(k.readers) > 0 {
		return nil
	}
	if next := k.nextInLine(); next != nil && t.mayPass(k) {
		k.acquired = t.config.Now()
		t.grant(k, next)
		return nil
	}
	k.yields = t.mustYield(k)
	t.giveBack(k)
	if t.config.AsyncUnlock {
		return nil
	}
	if *r == nil {
		*r = t.replies.Get().(*reply)
	}
	k.reply, k.place = *r, len((*r).errs)
	(*r).errs = append((*r).errs, errPending)
	(*r).left++
	return errPending
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
	if r == nil {
		return
	}
	k.reply = nil
	if r.expired {
		return
	}
	r.errs[k.place] = err
	if r.left--; r.left == 0 {
		t.arrivals.remove(&r.arrival)
		t.wake(r.done)
	}
}

// expire ends the wait for r, with err for what has not come.
func (t *Table) expire(r *reply, err error) {
	t.arrivals.remove(&r.arrival)
	r.expired = true
	for i := range r.errs {
		if r.errs[i] == errPending { //nolint:errorlint // a mark
			r.errs[i] = err
		}
	}
	t.wake(r.done)
}

// mustYield reports whether callers wait for k, and this process has kept it for
// as long as it may.
func (t *Table) mustYield(k *State) bool {
	return k.waits > 0 && t.config.HandOver > 0 && t.config.Now()-k.since >= t.config.HandOver
}

// freed notes that this process does not have k any more: it was given back
// (nil), or lost. If a statement under way tries it after that, it stays
// requested.
//
// If this process has kept the key for as long as it may, and has callers that
// wait, it rests, so that another process gets it.
func (t *Table) freed(k *State, err error) {
	t.held--
	k.owner.held--
	t.answer(k, err)
	k.owner, k.hold, k.readers = nil, nil, nil
	switch {
	case err == nil && (k.yields || t.mustYield(k)): // callers may have come, or left for another key
		k.since, k.rests = 0, t.config.Now()+t.config.YieldFor
	case err != nil || k.waits == 0:
		k.since = 0
	}
	k.yields = false
	if k.retaken {
		k.retaken = false
		return
	}
	t.turn(k, idle)
}
