package databases

import (
	"os"
	"strings"
	"testing"
)

// Each fault of a server has a row on the page, and each row that names one of
// these tests has its fault.
func TestConditionsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/databases/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## Faults of the server\n")
	if !ok {
		t.Fatal("the page has no section on faults of the server")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	want := map[string]string{} // the test of each fault
	for _, f := range serverFaults {
		want[f.name] = "`TestServerFaults`"
	}
	for _, f := range leaseFaults {
		want[f.name] = "`TestServerFaultsOfALeaseTable`"
	}
	for _, f := range mysqlFaults {
		want[f.name] = "`TestMySQLServerFaults`"
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
