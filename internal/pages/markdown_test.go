package pages

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// A page is what the checks need of one Markdown file.
type page struct {
	anchors map[string]bool // of its headings, as GitHub makes them
	links   []link
	blocks  []block
	quotes  []quote
	problem string // what makes the file unreadable here; empty if nothing does
}

// A link is the target of a link or an image.
type link struct {
	line   int
	target string
}

// A block is a fenced code block in Go.
type block struct {
	line int // of the first line of code
	code string
	mark string // the text of a "go:" comment on the line above the fence; empty without one
}

// A quote is an inline piece of code.
type quote struct {
	line int
	text string
}

var (
	inlineCode = regexp.MustCompile("`([^`]+)`")
	inlineLink = regexp.MustCompile(`\]\(<?([^)>\s]*)>?(?:\s+"[^"]*")?\)`)
	otherLink  = regexp.MustCompile(`(?:\b(?:src|href)="|^\s*\[[^\]]+\]:\s+)([^"\s]*)`) // in HTML, or by reference
	linkText   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	goMark     = regexp.MustCompile(`^<!--\s*go:\s*(.*?)\s*-->$`)
	otherFence = regexp.MustCompile("^(?:\\s+```|\\s*~~~|````|```\\s*(?:Go|GO|golang)\\b)")
	heading    = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	conflict   = regexp.MustCompile(`^(<{7}|>{7})( |$)`) // of a merge
)

// parse reads a page. It knows the Markdown that the project's pages use:
// fences that begin a line, headings with a number sign, and links.
func parse(text string) page {
	p := page{anchors: map[string]bool{}}
	lines := strings.Split(text, "\n")
	mark := ""
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case conflict.MatchString(line):
			p.problem = "a merge has left a conflict on line " + strconv.Itoa(i+1)
			return p
		case strings.HasPrefix(line, "```") && !otherFence.MatchString(line):
			end := i + 1
			for end < len(lines) && strings.TrimRight(lines[end], " ") != "```" {
				end++
			}
			if end == len(lines) {
				p.problem = "the code block on line " + strconv.Itoa(i+1) + " does not end"
				return p
			}
			if strings.TrimSpace(line[3:]) == "go" {
				p.blocks = append(p.blocks, block{i + 2, strings.Join(lines[i+1:end], "\n"), mark})
			} else if mark != "" {
				p.problem = "the mark above line " + strconv.Itoa(i+1) + " is not that of a Go block"
				return p
			}
			i, mark = end, ""
		case goMark.MatchString(line):
			mark = goMark.FindStringSubmatch(line)[1]
			if i+1 == len(lines) || !strings.HasPrefix(lines[i+1], "```") {
				p.problem = "no code block follows the mark on line " + strconv.Itoa(i+1)
				return p
			}
		case otherFence.MatchString(line):
			p.problem = "the code block on line " + strconv.Itoa(i+1) + " is not read here: begin it with three backticks at the margin, and go in lower case"
			return p
		default:
			p.read(i+1, line)
		}
	}
	return p
}

// read takes in one line of text.
func (p *page) read(n int, line string) {
	if m := heading.FindStringSubmatch(line); m != nil {
		p.addAnchor(m[1])
	}
	for _, m := range inlineCode.FindAllStringSubmatch(line, -1) {
		p.quotes = append(p.quotes, quote{n, m[1]})
	}
	text := inlineCode.ReplaceAllString(line, "code")
	for _, m := range append(inlineLink.FindAllStringSubmatch(text, -1), otherLink.FindAllStringSubmatch(text, -1)...) {
		p.links = append(p.links, link{n, m[1]})
	}
}

// addAnchor adds the anchor of a heading: the second one of the same text ends
// in -1, the third in -2.
func (p *page) addAnchor(title string) {
	anchor := slug(title)
	for n := 1; p.anchors[anchor]; n++ {
		anchor = slug(title) + "-" + strconv.Itoa(n)
	}
	p.anchors[anchor] = true
}

// slug is GitHub's anchor for a heading: in lower case, with hyphens for spaces,
// and without punctuation.
func slug(title string) string {
	title = linkText.ReplaceAllString(title, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}
