package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A report is what the tool writes.
type report struct {
	Files []struct {
		Name    string   `json:"file_name"`
		Mutants []mutant `json:"mutations"`
	} `json:"files"`
}

type mutant struct {
	Line, Column int
	Type, Status string
}

// listPage has the mutants that may survive, each with the reason on the next
// line.
const listPage = "internal/mutate/survivors.txt"

// judge counts the mutants, and reports an error if too many have survived or
// if one is not on the list.
func judge(folder, file string, match *regexp.Regexp) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	list, err := readList()
	if err != nil {
		return err
	}
	count := map[string]int{}
	var equivalent, unknown int
	for _, f := range r.Files {
		slices.SortFunc(f.Mutants, func(a, b mutant) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
		equal := map[string]int{}
		path := filepath.Join(folder, f.Name)
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		function, err := functions(path, source)
		if err != nil {
			return err
		}
		lines := strings.Split(string(source), "\n")
		for _, m := range f.Mutants {
			count[m.Status]++
			line := lines[m.Line-1]
			name := fmt.Sprintf("%s %s %s %s", path, function(m.Line), m.Type, strings.TrimSpace(line[:m.Column-1]+"»"+line[m.Column-1:]))
			if equal[name]++; equal[name] > 1 {
				name += fmt.Sprintf(" »%d", equal[name])
			}
			if m.Status != "LIVED" {
				continue
			}
			reason, known := list[name]
			delete(list, name)
			if strings.HasPrefix(reason, "equivalent") {
				equivalent++
			}
			if !known {
				unknown++
				fmt.Printf("survives: %d: %s\n", m.Line, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		path, _, _ := strings.Cut(name, " ")
		if filepath.Dir(path) == folder && match.MatchString(filepath.Base(path)) {
			fmt.Println("is caught now:", name)
		}
	}
	caught, lived := count["KILLED"]+count["TIMED OUT"], count["LIVED"]
	percent := 100 * float64(caught) / float64(caught+lived)
	fmt.Printf("%s: %d mutants in covered code, %d caught (%.1f %%), %d survive, %d of them equivalent; %d do not compile, %d are in code that is not covered\n",
		folder, caught+lived, caught, percent, lived, equivalent, count["NOT VIABLE"], count["NOT COVERED"])
	if unknown > 0 {
		return fmt.Errorf("%d survivors are not in %s", unknown, listPage)
	}
	if !(percent >= 85) {
		return fmt.Errorf("less than 85 %% are caught")
	}
	return nil
}

// functions returns which function of a file each line is in.
func functions(path string, source []byte) (func(line int) string, error) {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, path, source, 0)
	return func(line int) string {
		for _, d := range tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && files.Position(f.Pos()).Line <= line && line <= files.Position(f.End()).Line {
				return f.Name.Name
			}
		}
		return "-"
	}, err
}

// readList returns the reasons by mutants.
func readList() (map[string]string, error) {
	text, err := os.ReadFile(listPage)
	if err != nil {
		return nil, err
	}
	list := map[string]string{}
	name := ""
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSpace(line); {
		case line == "" || strings.HasPrefix(line, "#"):
		case name == "":
			name = line
		default:
			list[name], name = line, ""
		}
	}
	return list, nil
}
