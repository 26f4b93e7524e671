package campaign

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	svg "github.com/ajstarks/svgo"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// Timeline is a picture, as SVG, of one real freeze of the campaign.
func (r *Result) Timeline() ([]byte, error) {
	s, err := find(r.events)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	draw(&b, s, r.settings.Lease)
	return b.Bytes(), nil
}

// The measures of a picture, in pixels.
const (
	pictureWidth = 960
	laneLeft     = 120
	laneRight    = pictureWidth - 20
	lanesTop     = 130
	laneHeight   = 44
	barHeight    = 22
)

// Colours that can be told apart on white and on black.
const (
	ink        = "fill:#808080;font-family:sans-serif;font-size:13px"
	line       = "stroke:#808080;stroke-width:1"
	frozenFill = "fill:#7aa7d9;fill-opacity:0.28"
	staleFill  = "fill:url(#stale);stroke:#d9822b"
	firstFill  = "fill:#d9822b"
	laterFill  = "fill:#3f9b5f"
)

// A picture draws a story.
type picture struct {
	*svg.SVG
	story
	lanes []int // processes, the victim first
}

func draw(w io.Writer, s story, lease time.Duration) {
	p := &picture{svg.New(w), s, []int{s.fault.Process}}
	for _, h := range s.others {
		if !slices.Contains(p.lanes, h.Process) {
			p.lanes = append(p.lanes, h.Process)
		}
	}
	slices.Sort(p.lanes[1:])
	height := p.bottom() + 90
	p.Startview(pictureWidth, height, 0, 0, pictureWidth, height)
	title := fmt.Sprintf("One key while a holder's process is frozen for %d ms (lease %d ms)",
		time.Duration(s.fault.End-s.fault.Begin).Milliseconds(), lease.Milliseconds())
	p.Title(title)
	p.Def()
	p.Pattern("stale", 0, 0, 6, 6, "user")
	p.Line(0, 6, 6, 0, "stroke:#d9822b;stroke-width:1.5")
	p.PatternEnd()
	p.DefEnd()
	p.Text(laneLeft, 24, title, ink+";font-size:16px;font-weight:bold")
	p.holders()
	p.events()
	p.axis()
	p.legend(height - 14)
	p.End()
}

func (p *picture) bottom() int { return lanesTop + laneHeight*len(p.lanes) }

// x is where m is in the picture, y the top of a process' bars.
func (p *picture) x(m history.Moment) int {
	m = min(max(m, p.from), p.to)
	return laneLeft + int(int64(m-p.from)*(laneRight-laneLeft)/int64(p.to-p.from))
}

func (p *picture) y(process int) int {
	return lanesTop + laneHeight*slices.Index(p.lanes, process) + (laneHeight-barHeight)/2
}

// holders draws the lanes, and in them who held the key.
func (p *picture) holders() {
	victim := p.y(p.fault.Process)
	p.Rect(p.x(p.fault.Begin), victim-8, p.x(p.fault.End)-p.x(p.fault.Begin), barHeight+16, frozenFill)
	for _, process := range p.lanes {
		y := p.y(process)
		p.Text(laneLeft-10, y+barHeight-6, fmt.Sprintf("process %d", process), ink+";text-anchor:end")
		p.Line(laneLeft, y+barHeight, laneRight, y+barHeight, line+";stroke-opacity:0.4")
	}
	p.bar(p.lost.From, p.lost.Valid, victim, firstFill)
	p.bar(max(p.lost.From, p.lost.Valid), p.lost.Told, victim, staleFill)
	for _, h := range p.others {
		p.bar(h.From, h.Valid, p.y(h.Process), laterFill)
	}
}

// bar is at least two pixels wide, so that a short lock is seen.
func (p *picture) bar(from, to history.Moment, y int, style string) {
	p.Rect(p.x(from), y, max(2, p.x(to)-p.x(from)), barHeight, style)
}

// A mark is what happened at one moment.
type mark struct {
	at   history.Moment
	what string
}

// events draws the marks, each with its text on a line of its own: from the left
// downwards, and those with the text on their left upwards, so that no text stands
// on the line of another.
func (p *picture) events() {
	marks := []mark{{p.fault.Begin, "frozen"}}
	if p.refused != 0 {
		marks = append(marks, mark{p.refused, "the server still refuses others"})
	}
	marks = append(marks, mark{p.granted, "freed by the server, and granted to the next"},
		mark{p.lost.Told, "awake, and told: ErrLost"})
	if i := slices.IndexFunc(marks, p.textOnLeft); i >= 0 {
		slices.Reverse(marks[i:])
	}
	for row, m := range marks {
		p.mark(48+row*20, m)
	}
}

// textOnLeft reports whether there is no room for m's text on its right.
func (p *picture) textOnLeft(m mark) bool {
	return p.x(m.at) > laneLeft+(laneRight-laneLeft)*3/5
}

// mark draws m as a line from y through all lanes, with its text at the top.
func (p *picture) mark(y int, m mark) {
	x := p.x(m.at)
	p.Line(x, y+4, x, p.bottom(), line+";stroke-dasharray:3,3")
	text := fmt.Sprintf("%s (%d ms)", m.what, p.since(m.at))
	if p.textOnLeft(m) {
		p.Text(x-5, y+6, text, ink+";text-anchor:end")
	} else {
		p.Text(x+5, y+6, text, ink)
	}
}

// since is m in milliseconds from the freeze.
func (p *picture) since(m history.Moment) int64 {
	return time.Duration(m - p.fault.Begin).Milliseconds()
}

// axis draws the time below the lanes.
func (p *picture) axis() {
	y := p.bottom() + 8
	p.Line(laneLeft, y, laneRight, y, line)
	const step = history.Moment(500 * time.Millisecond)
	for m := p.fault.Begin - (p.fault.Begin-p.from)/step*step; m <= p.to; m += step {
		p.Line(p.x(m), y, p.x(m), y+5, line)
		p.Text(p.x(m), y+20, strconv.FormatInt(p.since(m), 10), ink+";text-anchor:middle")
	}
	p.Text(laneLeft-30, y+20, "ms", ink+";text-anchor:end")
}

// legend says what the bars mean.
func (p *picture) legend(y int) {
	x := laneLeft - 60
	for _, e := range []struct{ style, what string }{
		{firstFill, "held: Err was nil"},
		{staleFill, "not looked at any more; on waking, Err says ErrLost"},
		{laterFill, "other locks of the key"},
		{frozenFill, "frozen"},
	} {
		p.Rect(x, y-11, 18, 12, e.style)
		p.Text(x+24, y, e.what, ink)
		x += 44 + 7*len(e.what)
	}
}
