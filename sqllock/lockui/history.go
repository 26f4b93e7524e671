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
	held, waiting, roundTrip, exchanges float64
}

// A history keeps the last samples of a Session, for the graphs.
//
// Invariant: mu protects samples, which holds at most maxSamples, the oldest at
// next once it is full.
type history struct {
	stats func() sqllock.Stats

	mu      sync.Mutex
	samples []sample
	next    int
	last    uint64 // exchanges at the last sample
}

func newHistory(stats func() sqllock.Stats) *history {
	return &history{stats: stats, last: stats().Exchanges}
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

func (h *history) take() {
	stats := h.stats()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := sample{
		held: float64(stats.Held), waiting: float64(stats.Waiting), roundTrip: stats.RoundTrip.Seconds(),
		exchanges: float64(stats.Exchanges-h.last) / samplePause.Seconds(),
	}
	h.last = stats.Exchanges
	if len(h.samples) < maxSamples {
		h.samples = append(h.samples, s)
		return
	}
	h.samples[h.next] = s
	h.next = (h.next + 1) % maxSamples
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
		drawSparkline("Round trip", h.series(func(s sample) float64 { return s.roundTrip }), durationText),
		drawSparkline("Statements per second", h.series(func(s sample) float64 { return s.exchanges }), countText),
	}
}
