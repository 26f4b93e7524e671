package dialect

// InParts carries out b for a database that cannot take one key of each level,
// or none, in one statement. exchange carries out a batch without stacks.
//
// It calls exchange once to look for a key of each level. If a stack has not
// got all, it calls exchange again, and gives back what it has got of it.
func InParts(b *Batch, exchange func(*Batch) error) error {
	if len(b.Stacks) == 0 {
		return exchange(b)
	}
	first := Batch{Release: b.Release, Try: b.Try, Looks: b.Looks}
	for i := range b.Stacks {
		for _, keys := range b.Stacks[i].Levels {
			first.Looks = append(first.Looks, Look{Keys: keys, Want: 1})
		}
	}
	if err := exchange(&first); err != nil {
		return err
	}
	b.NotHeld, b.Busy = first.NotHeld, append(b.Busy, first.Busy...)
	copy(b.Looks, first.Looks)
	won := first.Looks[len(b.Looks):]
	var second Batch
	for i := range b.Stacks {
		s := &b.Stacks[i]
		s.Won, s.Failed = s.Won[:0], -1
		var taken []Key
		for level, keys := range s.Levels {
			if w := won[level].Won; len(w) > 0 {
				s.Won, taken = append(s.Won, w[0]), append(taken, keys[w[0]])
			} else if s.Failed < 0 {
				s.Failed = level
			}
		}
		if s.Failed >= 0 {
			s.Won, second.Release = s.Won[:0], append(second.Release, taken...)
		}
		won = won[len(s.Levels):]
	}
	if len(second.Release) == 0 {
		return nil
	}
	if err := exchange(&second); err != nil {
		return err
	}
	if second.NotHeld {
		return ErrNonsense
	}
	return nil
}
