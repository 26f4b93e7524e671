package dialect

import "slices"

// InParts carries out b for a database that cannot take all keys of a set, or
// one of each group, or none, in one statement.
//
// It calls exchange once to try each key of the sets, and for the first free
// key of each group. If keys beyond a group count, it asks held which keys are
// held by any session, after the keys were taken. If a set or a request is not
// complete, InParts calls exchange again and gives back the keys that it got of
// it.
//
// A key of a set or a group must be in no other part of b.
func InParts(b *Batch, exchange func(*Batch) error, held func([]Key) ([]Key, error)) error {
	if len(b.All)+len(b.Each) == 0 {
		return exchange(b)
	}
	first := Batch{Release: b.Release, Try: b.Try, Any: b.Any}
	if len(b.All) > 0 {
		first.Try = slices.Concat(append([][]Key{b.Try}, b.All...)...)
	}
	if len(b.Each) > 0 {
		first.Any = slices.Clone(b.Any)
		for i := range b.Each {
			first.Any = append(first.Any, b.Each[i].Keys)
		}
	}
	if err := exchange(&first); err != nil {
		return err
	}
	b.NotHeld, b.Won = append(b.NotHeld, first.NotHeld...), append(b.Won, first.Won[:len(b.Any)]...)
	second := Batch{Release: incompleteSets(b, first.Busy)}
	for i := range b.Each {
		b.Each[i].Won = first.Won[len(b.Any)+i]
	}
	err := checkLimits(b.Each, held)
	for request := range Requests(b.Each) {
		second.Release = append(second.Release, incomplete(request)...)
	}
	if err != nil || len(second.Release) == 0 {
		return err
	}
	err = exchange(&second)
	if err == nil && len(second.NotHeld) > 0 {
		err = ErrNonsense
	}
	return err
}

// incompleteSets fills in the responses for Try and All, of which the keys of
// busy are held. It returns the keys to give back.
func incompleteSets(b *Batch, held []Key) (giveBack []Key) {
	busy := setOf(held)
	for _, k := range b.Try {
		if busy[k] {
			b.Busy = append(b.Busy, k)
		}
	}
	for _, set := range b.All {
		missing := slices.IndexFunc(set, func(k Key) bool { return busy[k] })
		b.Missing = append(b.Missing, missing)
		for _, k := range set {
			if missing >= 0 && !busy[k] {
				giveBack = append(giveBack, k)
			}
		}
	}
	return giveBack
}

// checkLimits looks at the keys beyond the groups that have got a key. It marks
// the groups that are over their limit, and returns an error of held.
func checkLimits(groups []Group, held func([]Key) ([]Key, error)) error {
	var ask []Key
	for i := range groups {
		if g := &groups[i]; g.Won >= 0 && g.Bounded() {
			ask = append(append(ask, g.Beyond...), g.Keys...)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	keys, err := held(ask)
	if err != nil {
		return err
	}
	busy := setOf(keys)
	for i := range groups {
		g := &groups[i]
		if g.Won < 0 || !g.Bounded() {
			continue
		}
		places := -g.Held
		for _, k := range g.Beyond {
			if busy[k] {
				places--
			}
		}
		for _, k := range g.Keys {
			if !busy[k] {
				places++
			}
		}
		if places < 0 { // beside the key that it has
			g.Won = overLimit(g.Won)
		}
	}
	return nil
}

// overLimit returns a response that remembers the key won until it is given
// back.
func overLimit(won int) int { return GivenUp - 1 - won }

// incomplete returns the keys to give back of a request that has not got all,
// and completes its responses.
func incomplete(request []Group) (giveBack []Key) {
	if !slices.ContainsFunc(request, func(g Group) bool { return g.Won < 0 }) {
		return nil
	}
	for i := range request {
		switch g := &request[i]; {
		case g.Won >= 0:
			giveBack = append(giveBack, g.Keys[g.Won])
		case g.Won < GivenUp:
			giveBack = append(giveBack, g.Keys[overLimit(0)-g.Won])
			g.Won = OverLimit
		}
	}
	GiveUp(request)
	return giveBack
}

// setOf returns keys as a set.
func setOf(keys []Key) map[Key]bool {
	set := make(map[Key]bool, len(keys))
	for _, k := range keys {
		set[k] = true
	}
	return set
}
