package campaign

import (
	"bytes"
	"fmt"
	"image/color"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// Timeline draws one freeze of the campaign, as SVG.
func (r *Result) Timeline() ([]byte, error) {
	f, err := clearestFreeze(r.events)
	if err != nil {
		return nil, err
	}
	const margin = history.Moment(300 * time.Millisecond)
	t := &timeline{plot: newPlot(), freeze: f, from: max(f.lost.From, f.fault.Begin-margin) - margin/10, to: f.lost.Told + margin}
	t.processes = f.processes(t.from, t.to)
	if err := t.draw(r.settings.Lease); err != nil {
		return nil, err
	}
	return t.svg()
}

var sans = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 12}

func newPlot() *plot.Plot {
	p := plot.New()
	for _, text := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		*text = sans
	}
	p.Title.TextStyle.Font.Size = 15
	p.Title.Padding, p.Legend.Padding = 8, 3
	return p
}

// A timeline is a picture of a freeze with a lane for each process.
type timeline struct {
	freeze
	plot      *plot.Plot
	from, to  history.Moment
	processes []int // from the top
}

// The colours of Okabe and Ito can be told apart by most people who do not tell
// red from green.
var (
	heldColor   = color.RGBA{R: 213, G: 94, A: 255}
	lostColor   = color.RGBA{R: 244, G: 202, B: 174, A: 255}
	nextColor   = color.RGBA{G: 158, B: 115, A: 255}
	frozenColor = color.RGBA{R: 204, G: 227, B: 240, A: 255}
	triedColor  = color.Gray{Y: 110}
)

func (t *timeline) draw(lease time.Duration) error {
	t.plot.Title.Text = fmt.Sprintf("One key while its holder is frozen for %.0f ms (lease %d ms)", t.x(t.fault.End), lease.Milliseconds())
	t.plot.X.Label.Text = "ms since the process was frozen"
	var names []string
	for _, process := range slices.Backward(t.processes) {
		names = append(names, fmt.Sprintf("process %d", process))
	}
	t.plot.NominalY(names...)
	var ticks plot.ConstantTicks
	for ms := 0.0; ms < t.x(t.to); ms += 500 {
		ticks = append(ticks, plot.Tick{Value: ms, Label: fmt.Sprint(ms)})
	}
	t.plot.X.Tick.Marker = ticks
	t.plot.X.Min, t.plot.X.Max = t.x(t.from), t.x(t.to)
	t.plot.Y.Min, t.plot.Y.Max = -0.6, float64(len(names))+2.2 // the legend is above the lanes
	t.plot.Legend.Top, t.plot.Legend.Left = true, true
	victim := t.fault.Process
	t.bar("frozen", frozenColor, 34, victim, t.fault.Begin, t.fault.End)
	t.bar("held: Err is nil", heldColor, 18, victim, t.lost.From, t.lost.Valid)
	t.bar("not looked at; on waking, Err is ErrLost", lostColor, 18, victim, max(t.lost.From, t.lost.Valid), t.lost.Told)
	what := "held by others: Err is nil"
	for _, h := range t.holds {
		if h.Lock != t.lost.Lock && h.Valid > max(t.from, h.From) && h.From < t.to {
			t.bar(what, nextColor, 18, h.Process, h.From, h.Valid)
			what = "" // one entry in the legend for all
		}
	}
	return t.marks()
}

// bar draws a bar in the lane of a process. A short one is made long enough to
// be seen.
func (t *timeline) bar(what string, c color.Color, width float64, process int, from, to history.Moment) {
	from, to = max(from, t.from), min(to, t.to)
	to = max(to, from+(t.to-t.from)/400)
	line := &plotter.Line{
		XYs:       plotter.XYs{{X: t.x(from), Y: t.y(process)}, {X: t.x(to), Y: t.y(process)}},
		LineStyle: draw.LineStyle{Color: c, Width: vg.Points(width)},
	}
	t.plot.Add(line)
	if what != "" {
		key := *line
		key.Width = vg.Points(9)
		t.plot.Legend.Add(what, &key)
	}
}

// marks draws the refused calls, and the two moments that matter.
func (t *timeline) marks() error {
	if len(t.refused) > 0 {
		var points plotter.XYs
		for _, try := range t.refused {
			points = append(points, plotter.XY{X: t.x(try.Begin), Y: t.y(try.Process)})
		}
		tries := &plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: triedColor, Radius: vg.Points(3), Shape: draw.CrossGlyph{}}}
		t.plot.Add(tries)
		t.plot.Legend.Add("refused", tries)
	}
	labels, err := plotter.NewLabels(plotter.XYLabels{
		XYs:    plotter.XYs{{X: t.x(t.next.From), Y: t.y(t.next.Process) + 0.3}, {X: t.x(t.lost.Told), Y: t.y(t.fault.Process) + 0.4}},
		Labels: []string{fmt.Sprintf("granted to another process: %.0f ms", t.x(t.next.From)), fmt.Sprintf("told ErrLost: %.0f ms", t.x(t.lost.Told))},
	})
	if err != nil {
		return fmt.Errorf("campaign: %w", err)
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Font, labels.TextStyle[i].XAlign = sans, draw.XCenter
	}
	t.plot.Add(labels)
	return nil
}

// x is m in milliseconds since the freeze, y the lane of a process.
func (t *timeline) x(m history.Moment) float64 { return float64(m-t.fault.Begin) / 1e6 }

func (t *timeline) y(process int) float64 {
	return float64(len(t.processes) - 1 - slices.Index(t.processes, process))
}

// svg returns the picture.
func (t *timeline) svg() ([]byte, error) {
	c := vgsvg.New(9*vg.Inch, vg.Length(float64(len(t.processes))*0.6+2.4)*vg.Inch)
	t.drawOn(c)
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	// A reader without the font would else get one with serifs.
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")), nil
}

// drawOn draws the picture on a white ground.
func (t *timeline) drawOn(c vg.CanvasSizer) {
	whole := draw.New(c)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	t.plot.Draw(draw.Crop(whole, 10, -20, 10, -10))
}
