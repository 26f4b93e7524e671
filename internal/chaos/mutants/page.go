package mutants

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// A Page is the document with the table of all planted bugs. The table stands
// between two marks. It has the text of each patch, and how long it took to catch
// the bug when that was last tried.
type Page struct {
	name          string
	before, after string // around the table, with the marks
	table         string
}

const (
	beginMark = "<!-- planted bugs, written by make mutants -->"
	endMark   = "<!-- end of planted bugs -->"
)

var errMarks = errors.New("the table belongs between a line " + beginMark + " and a later line " + endMark + ", each once")

// OpenPage reads the page.
func OpenPage(name string) (*Page, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("mutants: %w", err)
	}
	before, rest, _ := strings.Cut(string(text), beginMark)
	table, after, found := strings.Cut(rest, endMark)
	if !found || strings.Contains(after, beginMark) || strings.Contains(after, endMark) {
		return nil, fmt.Errorf("mutants: %s: %w", name, errMarks)
	}
	return &Page{name: name, before: before + beginMark, after: endMark + after, table: table}, nil
}

// Times are how long the test and the campaign took to catch a bug; 0: unknown,
// or there is none.
type Times struct{ Test, Campaign time.Duration }

// The columns of the table.
const (
	nameColumn = iota
	wrongColumn
	fromColumn
	testColumn
	testTimeColumn
	campaignColumn
	campaignTimeColumn
	columns
)

// Times returns the times on the page, by the names of the bugs.
func (p *Page) Times() map[string]Times {
	times := make(map[string]Times)
	for line := range strings.Lines(p.table) {
		cells := strings.Split(strings.Trim(strings.ReplaceAll(strings.TrimSpace(line), `\|`, " "), "|"), "|")
		if len(cells) != columns {
			continue
		}
		name := strings.Trim(strings.TrimSpace(cells[nameColumn]), "`")
		times[name] = Times{seconds(cells[testTimeColumn]), seconds(cells[campaignTimeColumn])}
	}
	return times
}

func seconds(cell string) time.Duration {
	s, _ := strconv.ParseFloat(strings.TrimSpace(cell), 64) // else there is no time
	return time.Duration(s * float64(time.Second))
}

// Matches reports whether the page has this table.
func (p *Page) Matches(mutants []Mutant) bool { return p.table == table(mutants, p.Times()) }

// Write writes the page with the table of mutants and these times.
func (p *Page) Write(mutants []Mutant, times map[string]Times) error {
	p.table = table(mutants, times)
	return os.WriteFile(p.name, []byte(p.before+p.table+p.after), 0o644)
}

// table returns the table of mutants. Two figures stand above it.
func table(mutants []Mutant, times map[string]Times) string {
	var b strings.Builder
	taken := 0
	for _, m := range mutants {
		if m.From != "" {
			taken++
		}
	}
	fmt.Fprintf(&b, "\n\n%d bugs, of which %d are mistakes of other projects.\n\n", len(mutants), taken)
	b.WriteString("| bug | what is wrong | also made in | caught by the test | s | and by the campaign | s |\n")
	b.WriteString("|---|---|---|---|--:|---|--:|\n")
	for _, m := range mutants {
		took := times[m.Name]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n", m.Name, cell(m.Wrong), cell(m.From),
			m.Catch.short(), inSeconds(took.Test), m.Campaign.short(), inSeconds(took.Campaign))
	}
	b.WriteString("\n")
	return b.String()
}

// cell returns text as it may stand in a cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func inSeconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return strconv.FormatFloat(d.Seconds(), 'f', 1, 64)
}

// short returns c without what all commands have: the tests of a package, or the
// flags of a campaign.
func (c Command) short() string {
	if len(c.Words) == 0 {
		return ""
	}
	var folder, tests string
	var flags []string
	for i := 0; i < len(c.Words); i++ {
		switch word := c.Words[i]; {
		case word == "go", word == "test", word == "run", word == ".":
		case word == "-run" && i+1 < len(c.Words):
			i++
			tests = c.Words[i]
		case strings.HasPrefix(word, "./"):
			folder = strings.TrimPrefix(word, "./")
		case tests == "" && !strings.HasPrefix(word, "-count"), c.Dir == campaignDir:
			flags = append(flags, word)
		}
	}
	if c.Dir == campaignDir {
		return "`" + cell(strings.Join(flags, " ")) + "`"
	}
	if folder == "" {
		folder = c.Dir
	}
	return folder + ": `" + cell(strings.Trim(tests, "^$")) + "`"
}
