package mutants

import "testing"

// Each run has a place of its own, and the next run has the same.
func TestPlaces(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	open := func() *place {
		p, err := openPlaceIn(parent)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first, second := open(), open()
	if first.dir == second.dir {
		t.Error("two runs have the same place")
	}
	if err := first.close(); err != nil {
		t.Error(err)
	}
	if again := open(); again.dir != first.dir {
		t.Errorf("the next run is in %s, want %s", again.dir, first.dir)
	}
}
