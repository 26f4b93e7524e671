package check

import "github.com/latchkey-go/latchkey/internal/chaos/history"

// Hand-written histories count in seconds, so that calls far apart are settled.

const key = 7

func sec(n float64) history.Moment { return history.Moment(n * float64(1000*ms)) }

func tried(process int, begin, end float64, result history.Result) history.Event {
	return history.Event{Try: &history.Try{Process: process, Key: key, Begin: sec(begin), End: sec(end), Result: result}}
}

func refused(process int, begin, end float64) history.Event {
	return tried(process, begin, end, history.Held)
}

func granted(process int, lock int64, begin, end float64) history.Event {
	e := tried(process, begin, end, history.OK)
	e.Try.Lock = lock
	return e
}

func waiting(e history.Event) history.Event {
	e.Try.Waits = true
	return e
}

// held is a lock that was never ended: its process was killed.
func held(process int, lock int64, from, valid float64) history.Event {
	return history.Event{Hold: &history.Hold{Process: process, Key: key, Lock: lock, From: sec(from), Valid: sec(valid)}}
}

func unlocked(process int, lock int64, from, valid, begin, end float64, result history.Result) history.Event {
	e := held(process, lock, from, valid)
	e.Hold.UnlockBegin, e.Hold.Ended, e.Hold.Unlock = sec(begin), sec(end), result
	return e
}

func told(process int, lock int64, from, valid, told float64) history.Event {
	e := unlocked(process, lock, from, valid, told, told, history.Lost)
	e.Hold.Told = sec(told)
	return e
}

func fault(row, process int, begin, end float64) history.Event {
	return history.Event{Fault: &history.Fault{Row: row, Name: "fault", Process: process, Begin: sec(begin), End: sec(end)}}
}

func wrote(lock int64, result history.Result) history.Event {
	return history.Event{Write: &history.Write{Key: key, Lock: lock, Begin: 1, End: 2, Result: result}}
}

// often are calls of process 3 that are refused, one each second.
func often(from, to int) (all []history.Event) {
	for at := from; at < to; at++ {
		all = append(all, refused(3, float64(at), float64(at)+0.1))
	}
	return all
}

// turn is a lock taken and given back, with nothing amiss.
func turn(process int, lock int64, begin, end float64) []history.Event {
	return []history.Event{
		granted(process, lock, begin, begin+0.1),
		unlocked(process, lock, begin+0.1, end-0.2, end-0.1, end, history.OK),
	}
}

func join(parts ...[]history.Event) (all []history.Event) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func list(events ...history.Event) []history.Event { return events }

func onKey(k int64, events []history.Event) []history.Event {
	for _, e := range events {
		switch {
		case e.Try != nil:
			e.Try.Key = k
		case e.Hold != nil:
			e.Hold.Key = k
		}
	}
	return events
}
