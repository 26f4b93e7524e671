package keytable

import "time"

// A line is the requests of a group, in the order of their arrival. It is a
// list through the requests themselves, so that to leave costs the same
// everywhere.
type line struct{ first, last *Request }

// push puts r at the end.
func (l *line) push(r *Request) {
	r.prev, r.next = l.last, nil
	if l.last == nil {
		l.first = r
	} else {
		l.last.next = r
	}
	l.last = r
}

// remove takes r, which is in the line, out of it. A loop over the line may
// remove the request that it is at, if it has read next before.
func (l *line) remove(r *Request) {
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
}

// each calls f for each request. f may remove it.
func (l *line) each(f func(*Request)) {
	for r := l.first; r != nil; {
		next := r.next
		f(r)
		r = next
	}
}

// try notes that r, which only tries, comes now and is not decided at once.
func (t *Table) try(r *Request) {
	if t.tries.first == nil && t.config.Tries != nil {
		t.config.Tries()
	}
	t.tries.push(r, t.config.Now())
}

// arrivals are the requests of a table that only try, in the order of their
// arrival.
type arrivals struct{ first, last *Request }

// push adds r, which comes now.
func (a *arrivals) push(r *Request, now time.Duration) {
	r.since, r.older, r.newer = now, a.last, nil
	if a.last == nil {
		a.first = r
	} else {
		a.last.newer = r
	}
	a.last = r
}

// remove removes r, if it is there.
func (a *arrivals) remove(r *Request) {
	if r.older == nil && a.first != r {
		return
	}
	if r.older == nil {
		a.first = r.newer
	} else {
		r.older.newer = r.newer
	}
	if r.newer == nil {
		a.last = r.older
	} else {
		r.newer.older = r.older
	}
	r.older, r.newer = nil, nil
}
