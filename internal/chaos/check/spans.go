package check

import (
	"cmp"
	"slices"
	"sort"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A spans is a set of intervals, both ends included. It is filled by add, then
// prepared, then asked.
type spans struct {
	sorted []interval
	reach  []history.Moment // the latest end of the first i+1
}

type interval struct{ from, to history.Moment }

func (s *spans) add(from, to history.Moment) {
	s.sorted = append(s.sorted, interval{from, max(from, to)})
}

func (s *spans) prepare() {
	slices.SortFunc(s.sorted, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	s.reach = make([]history.Moment, len(s.sorted))
	var reach history.Moment
	for i, v := range s.sorted {
		reach = max(reach, v.to)
		s.reach[i] = reach
	}
}

// latest is the end of the last interval that touches from to to, 0 if none
// does.
func (s *spans) latest(from, to history.Moment) history.Moment {
	i := sort.Search(len(s.sorted), func(i int) bool { return s.sorted[i].from > to })
	if i == 0 || s.reach[i-1] < from {
		return 0
	}
	return s.reach[i-1]
}

func (s *spans) touch(from, to history.Moment) bool { return s.latest(from, to) != 0 }

// covered is how much of from to to lies in an interval.
func (s *spans) covered(from, to history.Moment) (sum history.Moment) {
	for _, v := range s.sorted {
		if begin, end := max(from, v.from), min(to, v.to); end > begin {
			sum += end - begin
			from = end
		}
	}
	return sum
}

// A times is when faults were in force, by process, each with those on all.
// Those on all alone have the number 0.
type times map[int]*spans

func timesOf(faults []history.Fault) times {
	t := times{0: {}}
	for _, f := range faults {
		t[f.Process] = &spans{}
	}
	for _, f := range faults {
		if f.Process != 0 {
			t[f.Process].add(f.Begin, f.End)
			continue
		}
		for _, s := range t {
			s.add(f.Begin, f.End)
		}
	}
	for _, s := range t {
		s.prepare()
	}
	return t
}

// of returns the times of process: its own, and those on all.
func (t times) of(process int) *spans {
	if s := t[process]; s != nil {
		return s
	}
	return t[0]
}

// anyOf returns the times of all faults, whoever is the victim.
func anyOf(faults []history.Fault) *spans {
	all := new(spans)
	for _, f := range faults {
		all.add(f.Begin, f.End)
	}
	all.prepare()
	return all
}
