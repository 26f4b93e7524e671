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
		n := len(s.Levels)
		s.Won, s.Failed = s.complete(won[:n])
		if s.Failed >= 0 {
			for level := range n {
				if w := won[level].Won; len(w) > 0 {
					second.Release = append(second.Release, s.Levels[level][w[0]])
				}
			}
		}
		won = won[n:]
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

// complete returns the response for s, after a look for each level.
func (s *Stack) complete(looks []Look) (won []int, failed int) {
	won = s.Won[:0]
	for level := range looks {
		if len(looks[level].Won) == 0 {
			return won[:0], level
		}
		won = append(won, looks[level].Won[0])
	}
	return won, -1
}
