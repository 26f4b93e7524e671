package lockui

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

const (
	samplePause = 2 * time.Second
	maxSamples  = 150 // five minutes
)

// A sample is the figures of a Session at one moment, in the order of graphs.
type sample [5]float64

// figures are the names of a sample's figures, and how they are written.
var figures = [len(sample{})]struct {
	title string
	text  func(float64) string
}{{"Held", countText}, {"Waiting", countText}, {"Lease remaining", durationText}, {"Round trip", durationText}, {"Keys per batch", countText}}

// A history keeps the last samples of a Session, for the graphs.
//
// Invariant: mu protects samples and before. There are at most maxSamples, the
// oldest first.
type history struct {
	stats func() sqllock.Stats

	mu      sync.Mutex
	samples []sample
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
		float64(now.Held), float64(now.Waiting), now.LeaseRemaining.Seconds(),
		mean(less(now.ExchangeTime, h.before.ExchangeTime)), mean(less(now.ExchangeKeys, h.before.ExchangeKeys)),
	}
	h.before = now
	h.samples = append(h.samples[max(len(h.samples)-maxSamples+1, 0):], s)
}

// less returns the values of a that are not in b, an earlier state of it.
func less(a, b sqllock.Histogram) sqllock.Histogram {
	return sqllock.Histogram{Count: a.Count - b.Count, Sum: a.Sum - b.Sum}
}

// graphs returns the drawings of h.
func (h *history) graphs() (all []sparkline) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, f := range figures {
		values := make([]float64, len(h.samples))
		for j, s := range h.samples {
			values[j] = s[i]
		}
		all = append(all, drawSparkline(f.title, values, f.text))
	}
	return all
}

// The size of a sparkline's drawing.
const (
	sparkWidth  = 180
	sparkHeight = 32
)

// A sparkline is a small graph of the last minutes, with the same in words.
type sparkline struct {
	Title  string
	Now    string
	Text   string // for readers who do not see the drawing
	Points string // of an SVG polyline; empty: there are fewer than two
}

// drawSparkline draws values, the oldest first, from 0 to the greatest.
func drawSparkline(title string, values []float64, text func(float64) string) sparkline {
	if len(values) == 0 {
		return sparkline{Title: title, Now: "–", Text: title + ": not known yet"}
	}
	least, most, last := slices.Min(values), slices.Max(values), values[len(values)-1]
	s := sparkline{Title: title, Now: text(last)}
	span := samplePause * time.Duration(len(values)-1)
	s.Text = fmt.Sprintf("%s: now %s. In the last %s between %s and %s.", title, s.Now, spanText(span.Seconds()), text(least), text(most))
	if len(values) == 1 {
		return s
	}
	var b strings.Builder
	for i, v := range values {
		height := 0.0
		if most > 0 {
			height = v / most
		}
		x := sparkWidth - float64(len(values)-1-i)*sparkWidth/(maxSamples-1)
		y := sparkHeight - 2 - height*(sparkHeight-4)
		fmt.Fprintf(&b, "%.1f,%.1f ", x, y)
	}
	s.Points = strings.TrimSpace(b.String())
	return s
}

// countText returns a count, or a mean of counts, as a text.
func countText(n float64) string {
	return strconv.FormatFloat(math.Round(n*10)/10, 'f', -1, 64)
}

// durationText returns a short duration in seconds as a text, such as a round trip.
func durationText(s float64) string {
	switch {
	case s == 0:
		return "–"
	case s < 0.01:
		return strconv.FormatFloat(s*1000, 'f', 2, 64) + " ms"
	case s < 1:
		return strconv.FormatFloat(s*1000, 'f', 0, 64) + " ms"
	}
	return strconv.FormatFloat(s, 'f', 1, 64) + " s"
}

// spanText returns an age in seconds as a text of at most two units.
func spanText(s float64) string {
	whole := int(s)
	switch {
	case s < 10:
		return strconv.FormatFloat(s, 'f', 1, 64) + " s"
	case whole < 60:
		return strconv.Itoa(whole) + " s"
	case whole < 3600:
		return fmt.Sprintf("%d min %d s", whole/60, whole%60)
	case whole < 86400:
		return fmt.Sprintf("%d h %d min", whole/3600, whole/60%60)
	}
	return fmt.Sprintf("%d d %d h", whole/86400, whole/3600%24)
}
