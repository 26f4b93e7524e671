package dialect

import (
	"regexp"
	"slices"
)

// A Table is a table that a schema creates, with the names of its columns.
type Table struct {
	Name    string
	Columns []string
}

// A statement of a schema has a line for each column.
var (
	tableLine  = regexp.MustCompile(`^CREATE TABLE (?:IF NOT EXISTS )?(\w+) \(`)
	columnLine = regexp.MustCompile("\n\\s*`?(\\w+)`?[ \\t]")
)

// TablesOf returns the tables that the statements of a schema create.
func TablesOf(schema []string) (all []Table) {
	for _, statement := range schema {
		head := tableLine.FindStringSubmatch(statement)
		if head == nil {
			continue
		}
		t := Table{Name: head[1]}
		for _, words := range columnLine.FindAllStringSubmatch(statement, -1) {
			if !slices.Contains([]string{"PRIMARY", "CONSTRAINT", "KEY"}, words[1]) {
				t.Columns = append(t.Columns, words[1])
			}
		}
		all = append(all, t)
	}
	return all
}
