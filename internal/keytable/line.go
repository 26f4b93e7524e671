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

// An arrival is a call that waits for the source, and only for so long: a
// request that only tries, or a Release.
type arrival struct {
	since        time.Duration // when it came
	older, newer *arrival      // in Table.arrivals

	request *Request
	reply   *reply
}

// arrivals are those of a table, in their order.
type arrivals struct{ first, last *arrival }

// arrive notes that a comes now.
func (t *Table) arrive(a *arrival) {
	if t.arrivals.first == nil && t.config.Arrival != nil {
		t.config.Arrival()
	}
	t.arrivals.push(a, t.config.Now())
}

// push adds a, which comes now.
func (all *arrivals) push(a *arrival, now time.Duration) {
	a.since, a.older, a.newer = now, all.last, nil
	if all.last == nil {
		all.first = a
	} else {
		all.last.newer = a
	}
	all.last = a
}

// remove removes a, if it is there.
func (all *arrivals) remove(a *arrival) {
	if a.older == nil && all.first != a {
		return
	}
	if a.older == nil {
		all.first = a.newer
	} else {
		a.older.newer = a.newer
	}
	if a.newer == nil {
		all.last = a.older
	} else {
		a.newer.older = a.older
	}
	a.older, a.newer = nil, nil
}

// each calls f for each request. f may remove it.
func (all *arrivals) each(f func(*Request)) {
	for a := all.first; a != nil; {
		next := a.newer
		if a.request != nil {
			f(a.request)
		}
		a = next
	}
}
