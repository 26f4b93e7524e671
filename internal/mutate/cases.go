package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// covered returns where in each file the blocks of a profile are that ran.
func covered(profile string) map[string][][2]position {
	blocks := map[string][][2]position{}
	for line := range strings.Lines(profile) {
		name, place, _ := strings.Cut(line, ":")
		var from, to position
		var statements, count int
		if _, err := fmt.Sscanf(place, "%d.%d,%d.%d %d %d", &from.line, &from.column, &to.line, &to.column, &statements, &count); err == nil && count > 0 {
			blocks[name] = append(blocks[name], [2]position{from, to})
		}
	}
	return blocks
}

// cases returns the conditions of each case of a switch that profile has as
// covered. The go command counts what is behind the colon only.
func cases(profile string) (conditions string, err error) {
	for name, blocks := range covered(profile) {
		files := token.NewFileSet()
		tree, err := parser.ParseFile(files, strings.TrimPrefix(name, module+"/"), nil, 0)
		if err != nil {
			return "", err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			choice, ok := n.(*ast.SwitchStmt)
			if !ok || !contain(blocks, positionOf(files, choice.Switch)) {
				return true
			}
			for _, s := range choice.Body.List {
				c := s.(*ast.CaseClause)
				from, to := positionOf(files, c.Case), positionOf(files, c.Colon)
				conditions += fmt.Sprintf("%s:%d.%d,%d.%d 1 1\n", name, from.line, from.column, to.line, to.column)
			}
			return true
		})
	}
	return conditions, nil
}

// A position is a place in a file, from 1.
type position struct{ line, column int }

func positionOf(files *token.FileSet, p token.Pos) position {
	at := files.Position(p)
	return position{at.Line, at.Column}
}

func (p position) before(q position) bool {
	return p.line < q.line || p.line == q.line && p.column < q.column
}

// contain reports whether p is in one of blocks.
func contain(blocks [][2]position, p position) bool {
	for _, b := range blocks {
		if !p.before(b[0]) && p.before(b[1]) {
			return true
		}
	}
	return false
}
