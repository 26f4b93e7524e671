package keytable

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
