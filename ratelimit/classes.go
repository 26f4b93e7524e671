package ratelimit

import (
	"context"
	"fmt"
	"slices"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Class is a kind of requests, such as those of a person who waits, or those
// of a nightly job. See [WithClasses].
type Class struct {
	Name string

	// Reserved is how many places of each id only requests of this class may
	// have. They may have the common places, too, once these are full.
	Reserved int

	// Priority orders the requests that wait for one id in this process: a
	// request with a higher Priority goes first. It is from -1,000,000 to
	// 1,000,000. Requests without a class have 0.
	Priority int
}

// WithClasses gives requests a class. The result of classOf is the Name of one of
// classes, or "" for a request without a class. ctx is that of the request.
//
// Reserved places are taken from the limit of each id. With [WithLimit] an id
// may have too few places for all of classes. Then the first of classes get
// theirs, and one place stays common.
//
// The Priority applies to the line of one process, see [WithWait]. Requests with
// a lower one are not served while those with a higher one keep all places. If a
// class must go on, reserve places for it.
//
// A name that is not one of classes is [ErrPolicy]. classOf must be quick and safe
// for concurrent use. If it panics, the caller of Acquire gets the panic.
//
// WithClasses panics if classOf is nil or there are no classes. It panics if a
// Name is empty or given twice, if Reserved is negative, or if a Priority is out
// of range. OneAtATime and AtMost panic if the places that are reserved leave
// none for other requests.
func WithClasses(classOf func(ctx context.Context) string, classes ...Class) Option {
	switch {
	case classOf == nil:
		panic("ratelimit: WithClasses needs a func that is not nil")
	case len(classes) == 0:
		panic("ratelimit: WithClasses needs at least one Class")
	}
	classes = slices.Clone(classes)
	reserved := 0
	for i, c := range classes {
		switch {
		case c.Name == "":
			panic("ratelimit: WithClasses needs a Name in each Class")
		case find(classes[:i], c.Name) != nil:
			panic("ratelimit: WithClasses has two classes of one Name")
		case c.Reserved < 0:
			panic("ratelimit: WithClasses needs a Reserved of zero or more")
		case c.Priority < -1_000_000 || c.Priority > 1_000_000:
			panic("ratelimit: WithClasses needs a Priority from -1,000,000 to 1,000,000")
		}
		reserved += c.Reserved
	}
	return func(l *Limiter) {
		if reserved >= l.most {
			panic("ratelimit: WithClasses reserves all places: requests of other classes would never be admitted")
		}
		l.classOf, l.classes = classOf, classes
	}
}

var errNoClass = fmt.Errorf("%w: the func of WithClasses returned a name that is not that of a Class; "+
	`return one of those names, or "" for a request without a class`, ErrPolicy)

// classify sets the class of the request.
func (p *place) classify(ctx context.Context) error {
	if p.l.classOf == nil {
		return nil
	}
	name := p.l.classOf(ctx)
	if p.class = find(p.l.classes, name); p.class == nil && name != "" {
		return errNoClass
	}
	return nil
}

// find returns the class with this name, or nil.
func find(classes []Class, name string) *Class {
	if i := slices.IndexFunc(classes, func(c Class) bool { return c.Name == name }); i >= 0 {
		return &classes[i]
	}
	return nil
}

// priority returns that of the request among those that wait.
func (p *place) priority() int {
	if p.class == nil {
		return 0
	}
	return p.class.Priority
}

// ofClass returns those of all slots that the request may take: the slots that
// are reserved for its class, which are so many, and then the common ones.
//
// The common ones are the first of the limit. The first class has its reserved
// slots at the top of the limit, and each other class has them below those.
func (p *place) ofClass(all []sqllock.Key) (slots []sqllock.Key, reserved int) {
	common, from := p.limit, 0
	for i := range p.l.classes {
		least := min(p.l.classes[i].Reserved, common-1)
		common -= least
		if p.class == &p.l.classes[i] {
			from, reserved = common, least
		}
	}
	if reserved == 0 {
		return all[:common:common], 0
	}
	return slices.Concat(all[from:from+reserved], all[:common]), reserved
}
