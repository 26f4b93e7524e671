package report

import (
	"bytes"
	"image/color"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// A plotFile is one plot and where it goes.
type plotFile struct {
	scenario string
	title    string
	file     string
	curves   []curve
	plot     *plot.Plot
}

// A curve is one contender, or one of its variants, over X.
type curve struct {
	label  string
	points plotter.XYs
	style  style
}

// plots are those for which there are enough figures.
func plots(r *results.Results) []plotFile {
	all := []plotFile{
		pairsPlot(r, "benchmarks-pairs.svg", "Acquire and release: pairs per second", "pairs per second", results.Rate),
		pairsPlot(r, "benchmarks-p99.svg", "Acquire and release: 99th percentile", "p99 of a pair, ms",
			func(r results.Round) float64 { return 1e3 * results.P99(r) }),
		heldPlot(r),
	}
	return slices.DeleteFunc(all, func(p plotFile) bool { return len(p.curves) == 0 })
}

// plotted are the contenders in the plots, where all would be too many.
var plotted = []string{
	locks.KitPgx, locks.KitPQ, locks.PerConnectionPgx, locks.PerConnectionPQ, "lease row, pgx",
	"go-redis", "go-redis AutoPipeline", locks.RueidisTuned,
}

func pairsPlot(r *results.Results, file, title, y string, f results.Figure) plotFile {
	p := newPlot(title, "callers", y)
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Tick.Marker = plot.TickerFunc(decades)
	out := plotFile{scenario: "pairs", title: title, file: file, plot: p}
	for i, contender := range plotted {
		out.add(contender, i, pointsOf(r, "pairs", contender, "", f))
	}
	p.X.Tick.Marker = valuesOf(out.curves)
	return out
}

func heldPlot(r *results.Results) plotFile {
	const title = "64 callers' pairs per second while other locks are held"
	p := newPlot(title, "other locks held by the Session", "pairs per second")
	p.Y.Min = 0
	p.Y.Tick.Marker = plot.TickerFunc(steps)
	out := plotFile{scenario: "held", title: title, file: "benchmarks-held.svg", plot: p}
	var variants []string
	for _, s := range r.Series {
		if s.Scenario == "held" && !slices.Contains(variants, s.Variant) {
			variants = append(variants, s.Variant)
		}
	}
	for i, variant := range variants {
		out.add(variant, 2*i, pointsOf(r, "held", locks.KitPgx, variant, results.Rate))
	}
	p.X.Tick.Marker = valuesOf(out.curves)
	p.Y.Min = 0 // the curves have raised it
	return out
}

func pointsOf(r *results.Results, scenario, contender, variant string, f results.Figure) (points plotter.XYs) {
	for _, s := range r.Series {
		if s.Scenario != scenario || s.Contender != contender || s.Variant != variant {
			continue
		}
		if v := s.Spread(f).Median; v > 0 {
			points = append(points, plotter.XY{X: float64(s.X), Y: v})
		}
	}
	slices.SortFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) })
	return points
}

// add adds a curve, if there is one to draw.
func (p *plotFile) add(label string, which int, points plotter.XYs) {
	if len(points) < 2 {
		return
	}
	c := curve{label: label, points: points, style: styles[which%len(styles)]}
	line, scatter, err := plotter.NewLinePoints(points)
	if err != nil {
		return // not a number: there is nothing to draw
	}
	line.LineStyle = c.style.line()
	scatter.GlyphStyle = c.style.glyph()
	p.plot.Add(line, scatter)
	p.curves = append(p.curves, c)
}

// Sizes of a plot; below it comes the legend.
const (
	width      = 9 * vg.Inch
	plotHeight = 5 * vg.Inch
	margin     = 0.15 * vg.Inch
	legendTop  = 0.3 * vg.Inch
	legendLine = 0.21 * vg.Inch
)

// legendRows is how many rows the legend has, in two columns.
func (p *plotFile) legendRows() int { return (len(p.curves) + 1) / 2 }

func (p *plotFile) legendHeight() vg.Length {
	return legendTop + vg.Length(p.legendRows())*legendLine
}

func (p *plotFile) height() vg.Length { return plotHeight + p.legendHeight() }

var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(12)
	p.X.Padding, p.Y.Padding = 0, 0
	for text, size := range map[*font.Font]vg.Length{
		&p.Title.TextStyle.Font: 16, &p.X.Label.TextStyle.Font: 13, &p.Y.Label.TextStyle.Font: 13,
		&p.X.Tick.Label.Font: 12, &p.Y.Tick.Label.Font: 12,
	} {
		*text = sans
		text.Size = size
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 205}, color.Gray{Y: 205}
	p.Add(grid)
	return p
}

// draw draws the plot, and the legend below it, where it covers no curve.
func (p *plotFile) draw(c vg.CanvasSizer) {
	whole := draw.New(c)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	p.plot.Draw(draw.Crop(whole, margin, -3*margin, p.legendHeight(), -margin))
	p.legend(draw.Crop(whole, 4*margin, -margin, 0, -plotHeight))
}

// legend is in two columns, for the labels are long.
func (p *plotFile) legend(c draw.Canvas) {
	rows := p.legendRows()
	for i, curve := range p.curves {
		x := c.Min.X + vg.Length(i/rows)*(c.Max.X-c.Min.X)/2
		y := c.Max.Y - legendTop - vg.Length(i%rows)*legendLine
		c.StrokeLine2(curve.style.line(), x, y, x+vg.Points(30), y)
		c.DrawGlyph(curve.style.glyph(), vg.Point{X: x + vg.Points(15), Y: y})
		text := p.plot.X.Tick.Label
		text.XAlign, text.YAlign = draw.XLeft, draw.YCenter
		c.FillText(text, vg.Point{X: x + vg.Points(38), Y: y}, curve.label)
	}
}

// save writes an SVG.
func (p *plotFile) save(file string) error {
	c := vgsvg.New(width, p.height())
	p.draw(c)
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return err
	}
	// A reader who lacks the font would else get one with serifs.
	text := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	return os.WriteFile(file, text, 0o644)
}
