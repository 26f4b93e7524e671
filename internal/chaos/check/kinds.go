package check

import "github.com/latchkey-go/latchkey/internal/chaos/history"

// A KindCount counts the calls of a kind and the locks that they brought.
type KindCount struct {
	Calls   int
	Results map[history.Result]int // of calls
	Locks   int
	Lost    int
}

// kinds counts calls and locks by kind. A call that brought a lock has OK.
func (s *sweep) kinds(events []history.Event, rs *records) {
	kind := func(k history.Kind) *KindCount {
		if s.report.Kinds[k] == nil {
			s.report.Kinds[k] = &KindCount{Results: map[history.Result]int{}}
		}
		return s.report.Kinds[k]
	}
	type line struct {
		history.Kind
		history.Result
	}
	several := map[int64]line{} // by Call
	for _, e := range events {
		t := e.Try
		switch {
		case t == nil:
		case t.Call == 0:
			k := kind(t.Kind)
			k.Calls++
			k.Results[t.Result]++
		case several[t.Call].Result != history.OK:
			several[t.Call] = line{t.Kind, t.Result}
		}
	}
	for _, l := range several {
		k := kind(l.Kind)
		k.Calls++
		k.Results[l.Result]++
	}
	for _, r := range rs.keys {
		for _, l := range r.locks {
			k := kind(l.Kind)
			k.Locks++
			if l.Told != 0 || l.Unlock == history.Lost {
				k.Lost++
			}
		}
	}
}
