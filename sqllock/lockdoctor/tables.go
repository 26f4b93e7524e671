package lockdoctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A foundTable is a table of our names as it is in the database.
type foundTable struct {
	Table, Schema string
	Qualified     string // PostgreSQL: with the schema of WithSchema, quoted; empty: the search_path finds it
	Columns       []column
	Rights        []string // those of allRights that this role has
	Key           bool     // it has a primary key

	Kind        string   // PostgreSQL's relkind
	Unlogged    bool     // PostgreSQL
	Trusted     bool     // PostgreSQL: its owner may not harm this role
	Hidden      bool     // PostgreSQL: row security hides rows from this role
	Constraints []string // PostgreSQL: the checks that are validated
	Engine      string   // MySQL
}

// inSQL returns the name of f for a statement of a fix.
func (f foundTable) inSQL() string { return cmp.Or(f.Qualified, f.Table) }

// plainTable is the Kind of a table that is neither a view nor partitioned.
const plainTable = "r"

// compare returns what is wrong with the tables that were found, and counts
// those that are ours.
func (s *subject) compare(found []foundTable) (findings []Result, count int) {
	missing, present := map[string][]string{}, map[string]bool{} // by feature
	for _, want := range tablesOf(s.dialect) {
		i := slices.IndexFunc(found, func(f foundTable) bool { return f.Table == want.table })
		if i < 0 {
			missing[want.name] = append(missing[want.name], want.table)
			continue
		}
		count++
		present[want.name] = true
		findings = append(findings, want.compare(s, found[i])...)
	}
	for _, f := range features {
		if len(missing[f.name]) > 0 && present[f.name] && !s.makes(f) {
			findings = append(findings, warning("there is no "+strings.Join(missing[f.name], ", "), "Run the statements of "+f.source+"."))
		}
	}
	return findings, count
}

// makes reports whether a Session makes the missing tables of f itself, if it
// may: see the check of rights.
func (s *subject) makes(f feature) bool {
	return f.name == leases || f.name == fences && s.dialect != sqllock.PostgreSQL
}

// uses reports whether the Sessions here use the tables of f if they are there.
func (s *subject) uses(f feature) bool {
	return f.name != leases || s.leaseTable || s.dialect != sqllock.PostgreSQL
}

// compare returns what is wrong with one table.
func (t table) compare(s *subject, is foundTable) (findings []Result) {
	again := fmt.Sprintf("Rename or drop %s, then run the statements of %s.", is.inSQL(), t.source)
	add := func(state State, reason, fix string) {
		if t.registry {
			state = Warning // no lock depends on it
		}
		findings = append(findings, Result{State: state, Reason: t.table + " " + reason, Fix: fix})
	}
	if is.Kind != plainTable {
		add(Error, "is not a plain table", again)
		return findings
	}
	var differ []string
	for _, c := range t.columns {
		if !slices.ContainsFunc(is.Columns, func(has column) bool {
			return has.Name == c.Name && (has.Type == c.Type || s.dialect == sqllock.SQLite)
		}) {
			differ = append(differ, c.Name+" "+c.Type)
		}
	}
	if len(differ) > 0 {
		add(Error, "is older or foreign: it lacks "+strings.Join(differ, ", "), again)
	}
	if !is.Key {
		add(Error, "has no primary key", again)
	}
	if s.dialect == sqllock.PostgreSQL && t.table == fenceTable && !slices.Contains(is.Constraints, fenceConstraint) {
		add(Error, "lacks the constraint "+fenceConstraint+", so no stale lock is rejected",
			fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s CHECK (NOT stale);", fenceTable, fenceConstraint))
	}
	if is.Engine != "" && !strings.EqualFold(is.Engine, "InnoDB") {
		add(Error, "has the engine "+is.Engine+", which has no transactions", "ALTER TABLE "+is.inSQL()+" ENGINE = InnoDB;")
	}
	if is.Unlogged && !t.registry {
		add(Error, "is UNLOGGED, so a crash of the server empties it while holders believe in their locks", "ALTER TABLE "+is.inSQL()+" SET LOGGED;")
	}
	if is.Hidden {
		add(Error, "has row security, which hides rows from this role", "ALTER TABLE "+is.inSQL()+" DISABLE ROW LEVEL SECURITY;")
	}
	if t.registry && !is.Trusted {
		add(Warning, "belongs to neither this role nor the database's owner nor a superuser, so it is not read",
			"ALTER TABLE "+is.inSQL()+" OWNER TO CURRENT_USER; as a superuser, or pass WithSchema if you trust the owner.")
	}
	return findings
}

// missingRights returns the rights that this role lacks on the tables that were
// found.
func (s *subject) missingRights(found []foundTable, fix func(rights, table string) string) (findings []Result) {
	for _, want := range tablesOf(s.dialect) {
		i := slices.IndexFunc(found, func(f foundTable) bool { return f.Table == want.table })
		if i < 0 || !s.uses(want.feature) {
			continue
		}
		var lacks []string
		for _, r := range want.rights {
			if !slices.Contains(found[i].Rights, r) {
				lacks = append(lacks, r)
			}
		}
		if len(lacks) == 0 {
			continue
		}
		rights := strings.Join(lacks, ", ")
		finding := wrong("the role lacks "+rights+" on "+want.table, fix(rights, found[i].inSQL()))
		if want.registry {
			finding.State = Warning
		}
		findings = append(findings, finding)
	}
	return findings
}

// tablesResult is the result of the check of tables on every database.
func (s *subject) tablesResult(found []foundTable) Result {
	findings, count := s.compare(found)
	switch {
	case count > 0:
	case s.dialect == sqllock.PostgreSQL && s.schema == "":
		return worst(passed("no table of latchkey is in the search_path; if the registry is in another schema, pass it with WithSchema"), findings)
	default:
		return worst(passed("no feature that has tables is set up"), findings)
	}
	return worst(passed("%s of latchkey as this version makes them", counted(count, "table")), findings)
}
