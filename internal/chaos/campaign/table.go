package campaign

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// columns is the head of the table, with a cell for each of them in cells. Three times are
// the median, the 99th percentile and the longest.
var columns = []string{
	"row", "fault", "times", "locks lost", "told p50 / p99 / max", "told before the next grant",
	"key free again p50 / p99 / max", "within the goal", "overlaps", "verdict",
}

// cells is one line of the table.
func (r *Result) cells(of *RowResult) []string {
	told, before := r.toldCells(of)
	free, within := r.freeCells(of)
	return []string{
		fmt.Sprint(of.Row.Number), of.Row.Name, fmt.Sprint(of.Times), fmt.Sprint(of.Lost),
		told, before, free, within, r.overlapCell(of), r.verdict(of),
	}
}

// noFigure is the cell of what does not apply.
const noFigure = "–"

func (r *Result) toldCells(of *RowResult) (told, before string) {
	t := r.telling(of)
	if t == nil || t.Locks == 0 {
		return noFigure, noFigure
	}
	before = fmt.Sprintf("%d of %d", t.InTime(), t.Locks)
	if t.Woke > 0 {
		before += fmt.Sprintf(" (%d on waking)", t.Woke)
	}
	return three(t.P50, t.P99, t.Max), before
}

func (r *Result) freeCells(of *RowResult) (free, within string) {
	rec := r.recovery(of)
	if rec == nil || rec.Keys == 0 {
		return noFigure, noFigure
	}
	return three(rec.P50, rec.P99, rec.Max), fmt.Sprintf("%.4g %% in %v", 100*float64(rec.Within)/float64(rec.Keys), rec.Goal)
}

// three is three times in milliseconds.
func three(p50, p99, longest time.Duration) string {
	return fmt.Sprintf("%d / %d / %d ms", p50.Milliseconds(), p99.Milliseconds(), longest.Milliseconds())
}

// overlapCell is the violations, and what is none.
func (r *Result) overlapCell(of *RowResult) string {
	if r.Report == nil {
		return noFigure
	}
	cell := fmt.Sprint(r.overlaps(of))
	for _, e := range r.Early {
		if e.Row == of.Row.Number {
			cell += fmt.Sprintf(", %d until the news came (≤ %.1f ms)", e.Times, float64(e.Longest.Microseconds())/1000)
		}
	}
	if of.Outside > 0 {
		cell += fmt.Sprintf(", %d where nothing is promised", of.Outside)
	}
	return cell
}

// overlaps counts those that began after a fault of this row, and before the
// next fault.
func (r *Result) overlaps(of *RowResult) (n int) {
	faults := make([]history.Fault, 0, len(r.injuries))
	for _, i := range r.injuries {
		faults = append(faults, i.Fault)
	}
	slices.SortFunc(faults, func(a, b history.Fault) int { return cmp.Compare(a.Begin, b.Begin) })
	for _, o := range r.Report.Overlaps {
		i, at := slices.BinarySearchFunc(faults, o.From, func(f history.Fault, m history.Moment) int { return cmp.Compare(f.Begin, m) })
		if !at {
			i--
		}
		if i >= 0 && faults[i].Row == of.Row.Number {
			n++
		}
	}
	return n
}

func (r *Result) verdict(of *RowResult) string {
	t, rec := r.telling(of), r.recovery(of)
	switch {
	case of.Err != nil, rec != nil && rec.Slow(), t != nil && lateTelling(t) != "", r.Report != nil && r.overlaps(of) > 0:
		return "VIOLATED"
	case r.Report == nil:
		return "not checked"
	case t != nil && missedGoal(t) != "":
		return "ok; " + missedGoal(t)
	}
	return "ok"
}

// telling is that of a row, nil if there is none.
func (r *Result) telling(of *RowResult) *check.Telling {
	if r.Report != nil {
		for _, t := range r.Report.Tellings {
			if t.Row == of.Row.Number {
				return t
			}
		}
	}
	return nil
}

// recovery is that of a row, nil if there is none.
func (r *Result) recovery(of *RowResult) *check.Recovery {
	if r.Report != nil {
		for _, rec := range r.Report.Recoveries {
			if rec.Row == of.Row.Number {
				return rec
			}
		}
	}
	return nil
}

// legend is how the figures of the table are counted.
const legend = "Times of telling run from the beginning of the fault, for the locks held then and lost to it (in row 2 a frozen holder is told when it wakes up). " +
	"Times until a key is free again run to the next grant that a caller got, from the beginning of the fault; in rows 14 to 16, during which nothing can happen, from its end."

// Markdown is the table for a document, with a line on how it came about.
func (r *Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n\n| %s |\n|%s\n", r.How(), legend, strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, of := range r.Rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(r.cells(of), " | "))
	}
	return b.String()
}

// What a document has around the table.
const (
	beginMark = "<!-- campaign -->"
	endMark   = "<!-- end of campaign -->"
)

// errMarks: a document does not say where the table belongs.
var errMarks = errors.New("the table belongs between a line " + beginMark + " and a later line " + endMark + ", each once")

// CanPaste reports, before a campaign, what would keep Paste from doing its work
// after it.
func CanPaste(name string) error {
	_, _, err := around(name)
	return err
}

// Paste replaces what stands between the two marks in the document of this name
// by text.
func Paste(name, text string) error {
	before, after, err := around(name)
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(before+"\n\n"+text+"\n"+after), 0o644)
}

// around is the document of this name up to the first mark and from the second.
func around(name string) (before, after string, err error) {
	document, err := os.ReadFile(name)
	if err != nil {
		return "", "", fmt.Errorf("campaign: %w", err)
	}
	text := string(document)
	from, to := strings.Index(text, beginMark)+len(beginMark), strings.Index(text, endMark)
	if strings.Count(text, beginMark) != 1 || strings.Count(text, endMark) != 1 || to < from {
		return "", "", fmt.Errorf("campaign: %s: %w", name, errMarks)
	}
	return text[:from], text[to:], nil
}
