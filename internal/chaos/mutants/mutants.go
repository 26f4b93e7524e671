// Package mutants shows that the campaigns would catch a bug: it plants known ones,
// each a patch in this folder, in a copy of the tree, and runs what should
// notice.
package mutants

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A Mutant is a bug as a patch. The lines before the diff say what is wrong and
// how it is caught:
//
//	The deadline is counted from the reply, not from the send.
//	caught by: go test ./sqllock -run TestSimulation
//	dir: internal/chaos
type Mutant struct {
	Name  string // the patch's file name, without its ending
	Wrong string // what is wrong, for people
	Catch []string
	Dir   string // in which the command runs; the tree's root if empty
	patch string
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
			m.Catch = strings.Fields(command)
		} else if dir, ok := strings.CutPrefix(line, "dir: "); ok {
			m.Dir = dir
		} else if line != "" {
			wrong = append(wrong, line)
		}
	}
	m.Wrong = strings.Join(wrong, " ")
	switch {
	case m.Wrong == "":
		return m, errors.New("it does not say what is wrong")
	case len(m.Catch) == 0:
		return m, errors.New(`there is no line "caught by: …"`)
	}
	return m, nil
}

// A Verdict is what came of a mutant.
type Verdict struct {
	Caught bool
	Output string // of the command
}

// Try plants m in a copy of the tree at root, made in dir, and runs what should
// catch it. An error is one of the trial: a patch that does not apply, a tree
// that does not compile.
func (m Mutant) Try(ctx context.Context, root, dir string) (Verdict, error) {
	if err := copyTree(root, dir); err != nil {
		return Verdict{}, err
	}
	if out, err := run(ctx, dir, "patch", "-p1", "--no-backup-if-mismatch", "--input="+m.patch); err != nil {
		return Verdict{}, fmt.Errorf("mutants: %s does not apply: %w\n%s", m.Name, err, out)
	}
	if out, err := run(ctx, dir, "go", "build", "./..."); err != nil {
		return Verdict{}, fmt.Errorf("mutants: with %s the tree does not compile: %w\n%s", m.Name, err, out)
	}
	out, err := run(ctx, filepath.Join(dir, m.Dir), m.Catch[0], m.Catch[1:]...)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return Verdict{}, ctx.Err()
	case err == nil:
		return Verdict{Output: out}, nil
	case !errors.As(err, &exit):
		return Verdict{}, err
	case strings.Contains(out, "[build failed]"):
		return Verdict{}, fmt.Errorf("mutants: with %s the tests do not compile:\n%s", m.Name, out)
	}
	return Verdict{Caught: true, Output: out}, nil
}

func run(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// copyTree copies the files of the tree at from, but for what is hidden.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if name != "." && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		target := filepath.Join(to, name)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o644)
	})
}
