// Package mutants shows that the tests and the campaign would catch a bug. It
// plants known bugs one at a time in a copy of the tree, and runs what should
// notice. Each bug is a patch in this folder.
package mutants

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Mutant is a bug as a patch. The lines before the diff say what is wrong and
// how it is caught:
//
//	The deadline is counted from the reply, not from the send.
//	from: riverqueue/river #1213
//	caught by: go test ./internal/simulation -run TestSimulation
//	dir: internal/chaos
//	campaign: go run . -rows 2,4,5 -faults 3
//
// The line "from:" is there if another project has made the same mistake: its
// repository, and the number of the issue or pull request. The line "campaign:"
// is there if the campaign sees the bug as well.
type Mutant struct {
	Name     string // the patch's file name, without its ending
	Wrong    string // what is wrong, for people
	From     string // where another project has made the mistake; may be empty
	Catch    Command
	Campaign Command // none if it has no words
	patch    string
}

// A Command is what is to notice a bug.
type Command struct {
	Words []string
	Dir   string // in which it runs; the tree's root if empty
}

// campaignDir is where campaigns run.
const campaignDir = "internal/chaos"

func (c Command) String() string {
	if c.Dir == "" {
		return strings.Join(c.Words, " ")
	}
	return "cd " + c.Dir + " && " + strings.Join(c.Words, " ")
}

// Load reads the mutants of a folder, in the order of their names.
func Load(dir string) ([]Mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var all []Mutant
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		m, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("mutants: %s: %w", filepath.Base(file), err)
		}
		m.Name = strings.TrimSuffix(filepath.Base(file), ".patch")
		if m.patch, err = filepath.Abs(file); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// parse reads what stands before the diff.
func parse(text string) (m Mutant, err error) {
	var wrong []string
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "--- ") {
			break
		}
		if command, ok := strings.CutPrefix(line, "caught by: "); ok {
			m.Catch.Words = strings.Fields(command)
		} else if from, ok := strings.CutPrefix(line, "from: "); ok {
			m.From = from
		} else if dir, ok := strings.CutPrefix(line, "dir: "); ok {
			m.Catch.Dir = dir
		} else if command, ok := strings.CutPrefix(line, "campaign: "); ok {
			m.Campaign = Command{strings.Fields(command), campaignDir}
		} else if line != "" {
			wrong = append(wrong, line)
		}
	}
	m.Wrong = strings.Join(wrong, " ")
	switch {
	case m.Wrong == "":
		return m, errors.New("it does not say what is wrong")
	case len(m.Catch.Words) == 0:
		return m, errors.New(`there is no line "caught by: …"`)
	}
	return m, nil
}
