package dialect

// A Group is a list of keys of which a request wants one. A request may have
// several groups, which follow each other in Batch.Each. It gets one key of
// each group, or none. Its groups are tried in their order, so of two requests
// with the same groups in the same order one goes on.
//
// All keys are exclusive ones of the bigint space.
type Group struct {
	Keys []Key // the first of these that is free
	Last bool  // the next group, if there is one, belongs to another request

	// Each key of Beyond that is held takes away one place of the group, and so
	// do the keys that Held counts. They are not in Beyond, because this session
	// holds them. The group is over its limit unless more of Keys are free than
	// such places are taken away.
	//
	// A session takes its key before it looks at the others. So of two sessions
	// for which there is only one place, at most one gets it.
	Beyond []Key
	Held   int

	Won int // response: the index of the key that was taken, or one of those below
}

// The responses for a Group without a key.
const (
	NoneFree  = -1 // no key of Keys was free
	OverLimit = -2 // a key was free, and too many keys of Beyond are held
	GivenUp   = -3 // another group of the request has failed: nothing is known about this one
)

// Bounded reports whether keys beyond g count.
func (g *Group) Bounded() bool { return len(g.Beyond) > 0 || g.Held > 0 }

// Requests calls yield with the groups of each request in groups.
func Requests(groups []Group) func(yield func([]Group) bool) {
	return func(yield func([]Group) bool) {
		first := 0
		for i := range groups {
			if groups[i].Last || i == len(groups)-1 {
				if !yield(groups[first : i+1]) {
					return
				}
				first = i + 1
			}
		}
	}
}

// GiveUp notes the failure of a request: the group that has failed keeps its
// response, and the session has no key of the others any more.
func GiveUp(request []Group) {
	for i := range request {
		if request[i].Won >= 0 {
			request[i].Won = GivenUp
		}
	}
}
