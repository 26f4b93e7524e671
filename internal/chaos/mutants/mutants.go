// Package mutants shows that the tests and the campaign would catch a bug. It
// plants known bugs one at a time, and runs what should notice. Each bug is a
// patch in this folder.
package mutants

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Mutant is a bug as a patch. The lines before the diff say what is wrong and
// how it is caught:
//
//	The deadline is counted from the reply, not from the send.
//	from: riverqueue/river #1213
//	run: internal/simulation
//	campaign: -rows 2,4,5 -faults 3
//
// A test of the package after "run:" must fail. Arguments of go test may follow.
// The line "from:" is there if another project has made the same mistake: its
// repository, and the number of the issue or pull request. The line "campaign:"
// is there if a campaign with these flags must report a violation, too.
type Mutant struct {
	Name     string // the patch's file name, without its ending
	Wrong    string // what is wrong, for people
	From     string // where another project has made the mistake; may be empty
	Run      []string
	Campaign []string // may be empty
	Files    []string // that the patch changes, from the root of the tree
	patch    string
}

// load reads the mutants of a folder, in the order of their names.
func load(dir string) ([]Mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.patch")) // sorted
	if err != nil {
		return nil, err
	}
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

// parse reads a patch.
func parse(text string) (m Mutant, err error) {
	var wrong []string
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if file, ok := strings.CutPrefix(line, "--- a/"); ok {
			m.Files = append(m.Files, file)
		} else if len(m.Files) > 0 {
			continue // of the diff
		} else if command, ok := strings.CutPrefix(line, "run: "); ok {
			m.Run = strings.Fields(command)
		} else if from, ok := strings.CutPrefix(line, "from: "); ok {
			m.From = from
		} else if flags, ok := strings.CutPrefix(line, "campaign: "); ok {
			m.Campaign = strings.Fields(flags)
		} else if line != "" {
			wrong = append(wrong, line)
		}
	}
	m.Wrong = strings.Join(wrong, " ")
	switch {
	case m.Wrong == "":
		return m, errors.New("it does not say what is wrong")
	case len(m.Run) == 0:
		return m, errors.New(`there is no line "run: …"`)
	case len(m.Files) == 0:
		return m, errors.New("there is no diff")
	}
	return m, nil
}
