package campaign

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// page is a report without its figures. A report that exists keeps its own
// words.
//
//go:embed report.md
var page string

// The sections of a report that have figures.
const (
	setupSection   = "setup"
	resultsSection = "results"
	rowsSection    = "rows"
)

// errSections: a report does not say where a section belongs.
var errSections = errors.New("each of its sections belongs between a line <!-- campaign: NAME --> and a later line <!-- end of NAME -->, each once")

// CheckReport reports, before a series, what would keep WriteReport from working
// after it.
func CheckReport(name string) error {
	_, err := Series{}.report(name)
	return err
}

// WriteReport writes the figures of s into the report of this name, which it
// makes if it is missing.
func (s Series) WriteReport(name string) error {
	text, err := s.report(name)
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

// report returns the text of a report.
func (s Series) report(name string) (string, error) {
	text := page
	old, err := os.ReadFile(name)
	if err == nil {
		text = string(old)
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("campaign: %w", err)
	}
	for _, section := range []struct{ name, text string }{
		{setupSection, s.setup()}, {resultsSection, s.results()}, {rowsSection, s.rows()},
	} {
		begin, end := "<!-- campaign: "+section.name+" -->", "<!-- end of "+section.name+" -->"
		before, rest, _ := strings.Cut(text, begin)
		_, after, found := strings.Cut(rest, end)
		if !found || strings.Count(text, begin) != 1 || strings.Count(text, end) != 1 {
			return "", fmt.Errorf("campaign: %s: %s: %w", name, section.name, errSections)
		}
		text = before + begin + "\n\n" + section.text + "\n" + end + after
	}
	return text, nil
}

// setup says what was run, and on what.
func (s Series) setup() string {
	var b strings.Builder
	if len(s) == 0 {
		return ""
	}
	set := s[0].settings
	if s[0].command != "" {
		fmt.Fprintf(&b, "To repeat it in `internal/chaos`: `%s`\n\n", s[0].command)
	}
	b.WriteString("| | |\n|---|---|\n")
	var took time.Duration
	var versions []string
	for _, r := range s {
		took += r.Took
		versions = append(versions, fmt.Sprintf("%v (%s)", r.settings.Store, r.Server))
	}
	for _, line := range [][2]string{
		{"Seed", fmt.Sprint(set.Seed)},
		{"Ended", s[len(s)-1].Ended.Format(time.DateOnly)},
		{"Stores", strings.Join(versions, ", ")},
		{"Time of work and faults", took.Round(time.Second).String()},
		{"Machine", s[len(s)-1].Machine},
		{"Processes", fmt.Sprintf("%d for each store, with a lease of %v", set.Processes, set.Lease)},
		{"Callers in each process", fmt.Sprintf("%d plain on %d keys, %d mixed, %d brisk, %d of each service", set.Callers, set.Keys, set.Mixed, set.Brisk, set.Services)},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", line[0], line[1])
	}
	return b.String()
}

// machine describes the machine.
func machine() string {
	return fmt.Sprintf("%d processors, %s/%s, %s%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), load())
}

// load says how busy the machine is, where the system tells.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return ""
	}
	return fmt.Sprintf("; load averages at the end %s, %s, %s", fields[0], fields[1], fields[2])
}

// results is a line for each store, and their sum.
func (s Series) results() string {
	var b strings.Builder
	head := []string{"store", "faults", "operations checked", "contended by another process", "during a fault", "locks", "of them lost",
		"overlaps outside the news", "told too late", "fenced writes", "stale writes stored", "refused by the fence", "refusals not judged", "result"}
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	var sum [12]int
	for _, r := range s {
		rep := r.Report
		if rep == nil {
			fmt.Fprintf(&b, "| %v |%s not checked |\n", r.settings.Store, strings.Repeat(" – |", len(head)-2))
			continue
		}
		figures := [12]int{r.Faults, rep.Operations, rep.Contended, rep.Troubled, rep.Locks, rep.Losses,
			len(rep.Overlaps), len(rep.Late), r.Stored, r.Stale, rep.Writes[history.Fenced], r.Linearization.Excused}
		for i, n := range figures {
			sum[i] += n
		}
		writeFigures(&b, r.settings.Store.String(), figures, r.verdict())
	}
	if len(s) > 1 {
		writeFigures(&b, "all", sum, "")
	}
	return b.String() + s.services()
}

// services is a line for each kind of call of the packages around sqllock, with
// how many there were in each store.
func (s Series) services() string {
	var lines []string
	cells := map[string][]string{}
	for i, r := range s {
		for _, of := range r.Services.Calls() {
			if cells[of.What] == nil {
				lines = append(lines, of.What)
				cells[of.What] = slices.Repeat([]string{"–"}, len(s))
			}
			cells[of.What][i] = fmt.Sprintf("%s (%s)", grouped(of.All), grouped(of.Troubled))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nCalls of the packages around `sqllock`, and in brackets those during a fault, or before all processes had recovered from one:\n\n| calls |")
	for _, r := range s {
		fmt.Fprintf(&b, " %v |", r.settings.Store)
	}
	fmt.Fprintf(&b, "\n|%s\n", strings.Repeat("---|", 1+len(s)))
	for _, what := range lines {
		fmt.Fprintf(&b, "| %s | %s |\n", what, strings.Join(cells[what], " | "))
	}
	return b.String()
}

func writeFigures(b *strings.Builder, name string, figures [12]int, result string) {
	fmt.Fprintf(b, "| %s |", name)
	for _, n := range figures {
		fmt.Fprintf(b, " %s |", grouped(n))
	}
	fmt.Fprintf(b, " %s |\n", result)
}

// grouped is n with commas between thousands.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// verdict is ok if no row was violated, and nothing else was wrong.
func (r *Result) verdict() string {
	for _, of := range r.Rows {
		if r.violated(of) {
			return "VIOLATED"
		}
	}
	if r.fence != nil || r.Report.Err() != nil {
		return "VIOLATED"
	}
	return "ok"
}

// rows is the table of the rows of each store.
func (s Series) rows() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", legend)
	for _, r := range s {
		name := r.settings.Store.String()
		fmt.Fprintf(&b, "\n### %s%s\n\n%s", strings.ToUpper(name[:1]), name[1:], r.table())
	}
	return b.String()
}
