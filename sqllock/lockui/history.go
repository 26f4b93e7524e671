package lockui

import (
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

const (
	samplePause = 2 * time.Second
	maxSamples  = 150 // five minutes
)

// A sample is the figures of a Session at one moment.
type sample struct {
	held, waiting, lease, roundTrip, keys float64
}

// A history keeps the last samples of a Session, for the graphs.
//
// Invariant: mu protects samples, next and before. There are at most maxSamples,
// and once there are so many, next is the oldest.
type history struct {
	stats func() sqllock.Stats

	mu      sync.Mutex
	samples []sample
	next    int
	before  sqllock.Stats // those of the last sample
}

func newHistory(stats func() sqllock.Stats) *history {
	return &history{stats: stats, before: stats()}
}

// sample takes the samples of all Sessions until Close. It asks no database.
func (h *Handler) sample() {
	ticker := time.NewTicker(samplePause)
	defer ticker.Stop()
	for {
		for _, past := range h.histories {
			past.take()
		}
		select {
		case <-h.closing.Done():
			return
		case <-ticker.C:
		}
	}
}

// take takes a sample. Round trips and keys are means since the sample before.
func (h *history) take() {
	now := h.stats()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := sample{
		held: float64(now.Held), waiting: float64(now.Waiting), lease: now.LeaseRemaining.Seconds(),
		roundTrip: mean(less(now.ExchangeTime, h.before.ExchangeTime)),
		keys:      mean(less(now.ExchangeKeys, h.before.ExchangeKeys)),
	}
	h.before = now
	if len(h.samples) < maxSamples {
		h.samples = append(h.samples, s)
		return
	}
	h.samples[h.next] = s
	h.next = (h.next + 1) % maxSamples
}

// less returns the values of a that are not in b, an earlier state of it.
func less(a, b sqllock.Histogram) sqllock.Histogram {
	return sqllock.Histogram{Count: a.Count - b.Count, Sum: a.Sum - b.Sum}
}

// series returns one figure of all samples, the oldest first.
func (h *history) series(figure func(sample) float64) []float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	values := make([]float64, 0, len(h.samples))
	for i := range h.samples {
		values = append(values, figure(h.samples[(h.next+i)%len(h.samples)]))
	}
	return values
}

// graphs returns the drawings of h.
func (h *history) graphs() []sparkline {
	return []sparkline{
		drawSparkline("Held", h.series(func(s sample) float64 { return s.held }), countText),
		drawSparkline("Waiting", h.series(func(s sample) float64 { return s.waiting }), countText),
		drawSparkline("Lease remaining", h.series(func(s sample) float64 { return s.lease }), durationText),
		drawSparkline("Round trip", h.series(func(s sample) float64 { return s.roundTrip }), durationText),
		drawSparkline("Keys per batch", h.series(func(s sample) float64 { return s.keys }), countText),
	}
}
