package keytable

import "errors"

// A reply is what a Release waits for: the results of its keys. It is reused
// only after all of them have come, and its token was taken.
type reply struct {
	errs []error       // of each key; errPending: to come
	left int           // to come
	done chan struct{} // holds a token when the last one has come
}

// errPending stands for a result that has not come.
var errPending = errors.New("keytable: pending")

// Release gives the keys of holds back, all in one statement, and waits for
// that until late. Each of holds has ended as Released, and is released once. It
// returns an error for each:
//   - nil: another caller has the key, or the source has given it back.
//   - ErrLost: it was lost before.
//   - lateErr: the source has not responded. It gives the key back later.
//   - An error of the source, which still gives the key back later.
//
// errs is memory for the result.
func (t *Table) Release(errs []error, late Waiter, holds ...*Hold) []error {
	var r *reply
	t.mu.Lock()
	for _, h := range holds {
		errs = append(errs, t.release(h, &r))
	}
	pending := r != nil && r.left > 0
	t.unlock()
	if r == nil {
		return errs
	}
	complete := !pending || late.Wait(r.done)
	t.mu.Lock()
	n := 0
	for i := range errs {
		if errs[i] == errPending { //nolint:errorlint // a mark
			if errs[i] = r.errs[n]; errs[i] == errPending { //nolint:errorlint // a mark
				errs[i] = late.Err()
			}
			n++
		}
	}
	t.mu.Unlock()
	if complete {
		r.errs = r.errs[:0]
		t.replies.Put(r)
	}
	return errs
}

// A Waiter waits for the response to a release.
type Waiter interface {
	Wait(done <-chan struct{}) bool // reports false if it takes too long
	Err() error                     // what the caller gets then
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
		if k.mode == Shared {
			t.admit(k)
		}
		return nil
	}
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
	r.errs[k.place] = err
	if r.left--; r.left == 0 {
		t.wake(r.done)
	}
}

// freed notes that this process does not have k any more: it was given back
// (nil), or lost. If a statement under way tries it after that, it stays
// requested.
//
// If this process has kept the key for as long as it may, its waiting callers
// pause, so that another process gets it.
func (t *Table) freed(k *State, err error) {
	t.held--
	k.owner.held--
	t.answer(k, err)
	k.owner, k.hold, k.readers = nil, nil, nil
	if k.retaken {
		k.retaken = false
		return
	}
	t.turn(k, idle)
	if now := t.config.Now; err == nil && t.config.HandOver > 0 && k.own.waits > 0 && k.own.tries == 0 && now()-k.since >= t.config.HandOver {
		t.poll(&k.own, now()+t.config.YieldFor)
	}
}
