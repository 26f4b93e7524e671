package otellatchkey

import (
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// results are those of the decisions, without the ends of a hold.
var results = []ratelimit.Result{
	ratelimit.Admitted, ratelimit.Busy, ratelimit.WaitTimeout, ratelimit.Canceled,
	ratelimit.FailedOpen, ratelimit.DryRun, ratelimit.Failed,
}

// limiterFigures are the figures of the limiters of one namespace.
type limiterFigures struct {
	requests       map[ratelimit.Result]int64 // not changed any more
	active, queued int64
	oldest         time.Duration
}

// plus adds the figures of a limiter.
func (f limiterFigures) plus(s ratelimit.Stats) limiterFigures {
	sum := limiterFigures{make(map[ratelimit.Result]int64), f.active + int64(s.Active), f.queued + int64(s.Queued), max(f.oldest, s.Oldest)}
	for _, result := range results {
		sum.requests[result] = f.requests[result] + int64(s.Requests[result])
	}
	return sum
}

// keepLocked keeps what l has counted, which was taken out, if other limiters of
// its namespace are there. Without it the sum would fall.
func (m *Metrics) keepLocked(l *ratelimit.Limiter) {
	namespace := l.Namespace()
	for other := range m.limiters {
		if other.Namespace() == namespace {
			s := l.Stats()
			s.Active, s.Queued, s.Oldest = 0, 0, 0 // they are not shown any more
			m.removed[namespace] = m.removed[namespace].plus(s)
			return
		}
	}
	delete(m.removed, namespace)
}

// sumByNamespace adds up the figures of limiters that share their limit. sums
// has what those counted that were taken out.
func sumByNamespace(limiters []*ratelimit.Limiter, sums map[sqllock.Namespace]limiterFigures) map[sqllock.Namespace]limiterFigures {
	for _, l := range limiters {
		sums[l.Namespace()] = sums[l.Namespace()].plus(l.Stats())
	}
	return sums
}
