package databases

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each row of the page names a test that exists, and each setting that is
// tested is on the page.
func TestConditionsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/databases/conditions.md")
	must(t, err)
	var code strings.Builder
	for _, dir := range []string{".", "../../sqllock"} {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		must(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(t, err)
			code.Write(text)
		}
	}
	named := regexp.MustCompile("`(Test[A-Za-z]*)(/[^`]*)?`")
	rows := 0
	for _, line := range strings.Split(string(page), "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| condition |") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		tests := named.FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(tests) == 0 {
			t.Errorf("no test is named in: %.80s…", line)
		}
		for _, test := range tests {
			if !strings.Contains(code.String(), "\nfunc "+test[1]+"(t *testing.T) {\n") {
				t.Errorf("%s is not there", test[1])
			}
			if name, ok := strings.CutPrefix(test[2], "/"); ok && !strings.Contains(code.String(), `name: "`+name+`"`) {
				t.Errorf("%s has no case %q", test[1], name)
			}
		}
	}
	if rows < 40 {
		t.Errorf("%d rows: is this the page?", rows)
	}
	for _, c := range roleSettings {
		if c.set != nil && !strings.Contains(string(page), "`TestLongSettings/"+c.name+"`") {
			t.Errorf("the page does not mention the setting %q", c.name)
		}
	}
	for _, u := range uses {
		if !slices.Contains([]string{"watermark", "idempotency", "election"}, u.name) && !strings.Contains(string(page), u.name) {
			t.Errorf("the page does not mention the use %q", u.name)
		}
	}
}

// Each fault of a server has a row on the page, and each row that names one of
// these tests has its fault.
func TestServerFaultsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/databases/conditions.md")
	must(t, err)
	_, section, ok := strings.Cut(string(page), "\n## Faults of the server\n")
	if !ok {
		t.Fatal("the page has no section on faults of the server")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	want := map[string]string{} // the test of each fault
	for _, f := range serverFaults {
		want[f.name] = "`TestLongServerFaults`"
	}
	for _, f := range leaseFaults {
		want[f.name] = "`TestLongServerFaultsOfALeaseTable`"
	}
	for _, f := range mysqlFaults {
		want[f.name] = "`TestLongMySQLServerFaults`"
	}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		name, test := cells[0], cells[len(cells)-1]
		if !strings.Contains(test, "ServerFaults") || !strings.HasPrefix(line, "|") {
			continue
		}
		if want[name] != test {
			t.Errorf("the row %q names %s, want %q", name, test, want[name])
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("the page has no row for %q", name)
	}
}
