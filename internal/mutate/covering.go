package main

import (
	"cmp"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A set is tests of one package that cover the package of the mutants.
type set struct {
	module string   // the folder of the module
	pkg    string   // the folder of the package in it
	run    string   // a regular expression for the names; "" is all that make test runs
	skip   string   // the same for those that are left out; "" is none
	sub    string   // the same for the subtests
	flags  []string // of the test binary
}

// pattern is the argument of -run for the tests with these names.
func (s set) pattern(names ...string) string {
	p := "^(" + strings.Join(names, "|") + ")$"
	if s.sub != "" {
		p += "/" + s.sub
	}
	return p
}

// list returns the names of the tests in binary that belong to the set.
func (s set) list(binary string) ([]string, error) {
	match, err := regexp.Compile(s.run)
	if err != nil {
		return nil, err
	}
	skip, err := regexp.Compile(cmp.Or(s.skip, "^$"))
	if err != nil {
		return nil, err
	}
	c := exec.Command(binary, "-test.list=^(Test|Example|Fuzz)")
	c.Dir = filepath.Join(s.module, s.pkg)
	out, err := c.Output()
	return slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool {
		return s.run == "" && strings.HasPrefix(name, "TestLong") || !match.MatchString(name) || skip.MatchString(name)
	}), err
}

// cover runs each test of the sets alone, without a mutant. It keeps in a file
// which code of the package the test covers, and how long it takes. It returns
// the profile of all of them.
func cover(folder string) (profile string, err error) {
	for i, s := range tests[folder] {
		binary := filepath.Join(os.TempDir(), fmt.Sprintf("tests-%d", i))
		build := exec.Command(goProgram(), "test", "-c", "-vet=off", "-ldflags=-w", "-coverpkg="+module+"/"+folder, "-o="+binary, "./"+s.pkg)
		build.Dir = s.module
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		names, err := s.list(binary)
		if err != nil {
			return "", err
		}
		if err := os.MkdirAll(coverDir(i), 0o700); err != nil {
			return "", err
		}
		var (
			all  sync.WaitGroup
			mu   sync.Mutex // protects what follows, and profile
			fail error
			sum  time.Duration
			two  = make(chan struct{}, 2)
		)
		for _, name := range names {
			two <- struct{}{}
			all.Go(func() {
				defer func() { <-two }()
				blocks, took, err := s.coverOne(binary, name, filepath.Join(coverDir(i), name))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					fail = err
				}
				sum += took
				profile += blocks
			})
		}
		all.Wait()
		if fail != nil {
			return "", fail
		}
		began := time.Now()
		if out, err := s.command(binary, names...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("without a mutant: %w\n%s", err, out)
		}
		ratio := time.Since(began).Seconds() / sum.Seconds() // together they share servers, and run at once
		if err := os.WriteFile(ratioFile(i), fmt.Append(nil, ratio), 0o600); err != nil {
			return "", err
		}
	}
	return "mode: set\n" + profile, nil
}

// command runs tests of the set.
func (s set) command(binary string, names ...string) *exec.Cmd {
	c := limited(binary, append([]string{"-test.run=" + s.pattern(names...)}, s.flags...)...)
	c.Dir = filepath.Join(s.module, s.pkg)
	return c
}

// coverOne runs one test, and writes to file its time and what it covers.
func (s set) coverOne(binary, name, file string) (blocks string, took time.Duration, err error) {
	began := time.Now()
	c := s.command(binary, name)
	c.Args = append(c.Args, "-test.coverprofile="+file)
	if out, err := c.CombinedOutput(); err != nil {
		return "", 0, fmt.Errorf("%s without a mutant: %w\n%s", name, err, out)
	}
	took = time.Since(began)
	text, err := os.ReadFile(file)
	if err != nil {
		return "", 0, err
	}
	_, blocks, _ = strings.Cut(string(text), "\n")
	conditions, err := cases(blocks)
	if err != nil {
		return "", 0, err
	}
	blocks += conditions
	return blocks, took, os.WriteFile(file, []byte(took.String()+"\n"+blocks), 0o600)
}

// coverDir has a file for each test of a set.
func coverDir(set int) string { return filepath.Join(os.TempDir(), "cover-"+strconv.Itoa(set)) }

// ratioFile has the time of all tests of a set in one process by the sum of
// their times alone.
func ratioFile(set int) string { return filepath.Join(os.TempDir(), "ratio-"+strconv.Itoa(set)) }

// covering returns the tests of a set that cover a line of a file, and how long
// they take together. That is at least as long as the longest takes alone.
func covering(set int, path string, line int) (names []string, took time.Duration, err error) {
	text, err := os.ReadFile(ratioFile(set))
	if err != nil {
		return nil, 0, err
	}
	ratio, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return nil, 0, err
	}
	entries, err := os.ReadDir(coverDir(set))
	if err != nil {
		return nil, 0, err
	}
	longest := time.Duration(0)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(coverDir(set), e.Name()))
		if err != nil {
			return nil, 0, err
		}
		first, blocks, _ := strings.Cut(string(text), "\n")
		d, err := time.ParseDuration(first)
		if err != nil {
			return nil, 0, err
		}
		hit := slices.ContainsFunc(covered(blocks)[module+"/"+path], func(b [2]position) bool {
			return b[0].line <= line && line <= b[1].line
		})
		if hit {
			names, took, longest = append(names, e.Name()), took+d, max(longest, d)
		}
	}
	return names, max(longest, time.Duration(ratio*float64(took))), nil
}

// changedLine returns where the mutant is in the files of the current
// directory: those in original are without it. The tool formats a file anew, so
// the first token counts that differs.
func changedLine(original string) (name string, line int, err error) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		return "", 0, err
	}
	for _, name := range files {
		mutant, err := os.ReadFile(name)
		if err != nil {
			return "", 0, err
		}
		source, err := os.ReadFile(filepath.Join(original, name))
		if err != nil {
			return "", 0, err
		}
		was, now := tokens(source), tokens(mutant)
		for i, t := range was {
			if i >= len(now) || t.text != now[i].text {
				return name, t.line, nil
			}
		}
	}
	return "", 0, fmt.Errorf("no file differs from one in %s", original)
}

// A lexeme is a token and its line.
type lexeme struct {
	text string
	line int
}

func tokens(source []byte) (all []lexeme) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(source))
	s.Init(file, source, nil, 0)
	for {
		at, kind, text := s.Scan()
		if kind == token.EOF {
			return all
		}
		all = append(all, lexeme{cmp.Or(text, kind.String()), file.Line(at)})
	}
}
