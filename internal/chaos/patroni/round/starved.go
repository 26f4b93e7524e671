//go:build linux

package round

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// napTime is how long a nap of starved takes on a machine that has time.
const napTime = 10 * time.Millisecond

// overslept is by how much a nap must be longer to count.
const overslept = history.Moment(40 * time.Millisecond)

// starved returns the times in which this process overslept, until ctx ends. The
// processes under test run on the same processors. So they may have been late
// too, with what they had heard.
func starved(ctx context.Context) <-chan []span {
	result := make(chan []span, 1)
	go func() {
		var all []span
		for last := history.Now(); ctx.Err() == nil; {
			time.Sleep(napTime)
			now := history.Now()
			if due := last + history.Moment(napTime); now-due > overslept {
				all = append(all, span{due, now})
			}
			last = now
		}
		result <- all
	}()
	return result
}

// within returns how much of the spans lies between from and to.
func within(all []span, from, to history.Moment) (sum history.Moment) {
	for _, s := range all {
		sum += max(0, min(s.To, to)-max(s.From, from))
	}
	return sum
}
