package lockui

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

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
	s.Text = fmt.Sprintf("%s: now %s. In the last %s between %s and %s.", title, s.Now, spanText(seconds(span.Seconds())), text(least), text(most))
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

// spanText returns an age as a text of at most two units.
func spanText(s seconds) string {
	whole := int(s)
	switch {
	case s < 10:
		return strconv.FormatFloat(float64(s), 'f', 1, 64) + " s"
	case whole < 60:
		return strconv.Itoa(whole) + " s"
	case whole < 3600:
		return fmt.Sprintf("%d min %d s", whole/60, whole%60)
	case whole < 86400:
		return fmt.Sprintf("%d h %d min", whole/3600, whole/60%60)
	}
	return fmt.Sprintf("%d d %d h", whole/86400, whole/3600%24)
}
