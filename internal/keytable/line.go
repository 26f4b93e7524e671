package keytable

import "time"

// A list has calls in the order of their arrival. It goes through the calls
// themselves, so that to leave costs the same everywhere.
type list struct{ first, last *call }

// A call is a request, or a Release, in a list.
type call struct {
	prev, next *call
	since      time.Duration // when it came; of those in Table.arrivals

	request *Request
	reply   *reply
}

// push puts c at the end.
func (l *list) push(c *call) {
	c.prev, c.next = l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
}

// remove takes c out of the list, if it is there. A loop over the list may remove
// the call that it is at, if it has read next before.
func (l *list) remove(c *call) {
	if c.prev == nil && l.first != c {
		return
	}
	if c.prev == nil {
		l.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
}

// each calls f for each request. f may remove it.
func (l *list) each(f func(*Request)) {
	for c := l.first; c != nil; {
		next := c.next
		if c.request != nil {
			f(c.request)
		}
		c = next
	}
}

// arrive notes that a call comes now which waits for the source, and only for so
// long: a request that only tries, or a Release. Calls for the same batch count
// from the first of them, which saves each a reading of the clock: a batch that
// stays away makes them fail together.
func (t *Table) arrive(c *call) {
	if t.arrivals.first == nil {
		t.arrived = 0 // it was of a call that has left
		if t.config.Arrival != nil {
			t.config.Arrival()
		}
	}
	if t.arrived == 0 {
		t.arrived = t.config.Now()
	}
	c.since = t.arrived
	t.arrivals.push(c)
}
