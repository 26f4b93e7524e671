package report

import (
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A style tells a curve from the others by its colour, its marker and, between
// two of a kind, by dashes.
type style struct {
	color  color.Color
	marker draw.GlyphDrawer
	dashed bool
}

// styles are the colours of Okabe and Ito, which people who do not tell red
// from green can tell apart, without the yellow that vanishes on white.
var styles = []style{
	{color.RGBA{R: 0, G: 114, B: 178, A: 255}, draw.CircleGlyph{}, false},
	{color.RGBA{R: 86, G: 180, B: 233, A: 255}, draw.CircleGlyph{}, true},
	{color.RGBA{R: 213, G: 94, B: 0, A: 255}, draw.BoxGlyph{}, false},
	{color.RGBA{R: 230, G: 159, B: 0, A: 255}, draw.BoxGlyph{}, true},
	{color.RGBA{R: 110, G: 110, B: 110, A: 255}, draw.CrossGlyph{}, false},
	{color.RGBA{R: 204, G: 121, B: 167, A: 255}, draw.PyramidGlyph{}, true},
	{color.RGBA{R: 0, G: 158, B: 115, A: 255}, draw.TriangleGlyph{}, false},
	{color.RGBA{R: 0, G: 0, B: 0, A: 255}, draw.PlusGlyph{}, true},
}

func (s style) line() draw.LineStyle {
	l := draw.LineStyle{Color: s.color, Width: vg.Points(2.2)}
	if s.dashed {
		l.Dashes = []vg.Length{vg.Points(6), vg.Points(3)}
	}
	return l
}

func (s style) glyph() draw.GlyphStyle {
	return draw.GlyphStyle{Color: s.color, Radius: vg.Points(4.2), Shape: s.marker}
}

// decades ticks 1, 2 and 5 of each power of ten.
func decades(low, high float64) (ticks []plot.Tick) {
	for decade := math.Pow10(int(math.Floor(math.Log10(low)))); decade <= high; decade *= 10 {
		for _, step := range []float64{1, 2, 5} {
			if v := step * decade; v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: axisText(v)})
			}
		}
	}
	return ticks
}

// steps ticks four to ten round numbers.
func steps(low, high float64) (ticks []plot.Tick) {
	step := math.Pow10(int(math.Floor(math.Log10(high - low))))
	switch n := (high - low) / step; {
	case n < 2:
		step /= 5
	case n < 4:
		step /= 2
	}
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: axisText(v)})
	}
	return ticks
}

// valuesOf ticks where there are points.
func valuesOf(curves []curve) plot.ConstantTicks {
	var values []float64
	for _, c := range curves {
		for _, point := range c.points {
			values = append(values, point.X)
		}
	}
	slices.Sort(values)
	var ticks plot.ConstantTicks
	for _, v := range slices.Compact(values) {
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	return ticks
}

// axisText writes a round number.
func axisText(v float64) string {
	text := func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
	switch {
	case v >= 1e6:
		return text(v/1e6) + "M"
	case v >= 1e3:
		return text(v/1e3) + "k"
	}
	return text(v)
}
