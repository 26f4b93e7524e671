package campaign

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/nemesis"
)

func TestPaste(t *testing.T) {
	tests := []struct {
		name, document, want string // want empty: refused
	}{
		{"first time", "# A\n<!-- campaign -->\n<!-- end of campaign -->\nB\n", "# A\n<!-- campaign -->\n\nTABLE\n<!-- end of campaign -->\nB\n"},
		{"again", "# A\n<!-- campaign -->\n\nOLD\nold\n<!-- end of campaign -->", "# A\n<!-- campaign -->\n\nTABLE\n<!-- end of campaign -->"},
		{"no marks", "# A\n", ""},
		{"no end", "<!-- campaign -->\n", ""},
		{"no beginning", "<!-- end of campaign -->\n", ""},
		{"the wrong way round", "<!-- end of campaign -->\n<!-- campaign -->\n", ""},
		{"twice", "<!-- campaign -->\n<!-- end of campaign -->\n<!-- campaign -->\n<!-- end of campaign -->\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "document.md")
			if err := os.WriteFile(name, []byte(tt.document), 0o600); err != nil {
				t.Fatal(err)
			}
			can, err := CanPaste(name), Paste(name, "TABLE")
			got, readErr := os.ReadFile(name)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if tt.want == "" {
				if !errors.Is(err, errMarks) || !errors.Is(can, errMarks) || string(got) != tt.document {
					t.Errorf("got %v, %v and %q, want it refused and left alone", can, err, got)
				}
			} else if err != nil || can != nil || string(got) != tt.want {
				t.Errorf("got %v, %v and %q, want %q", can, err, got, tt.want)
			}
		})
	}
	if err := Paste(filepath.Join(t.TempDir(), "none"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a document that is not there: %v", err)
	}
}

func fleetSettings() fleet.Settings { return fleet.Settings{Lease: time.Second, Seed: 7} }

// A campaign of two faults: a partition at 100 ms and a reset at 3 s.
func results(t *testing.T, events ...[]history.Event) (*Result, error) {
	t.Helper()
	rows := []nemesis.Row{{Number: 4, Name: "partition"}, {Number: 8, Name: "reset"}, {Number: 30, Name: "restart"}}
	r := newResult(fleetSettings(), rows)
	faults := []history.Event{fault(4, 1, 100, 1200), fault(8, 2, 3000, 3010)}
	var all []history.Event
	for i, e := range faults {
		r.add(rows[i], nemesis.Injury{Fault: *e.Fault, Lost: 1, Recovery: 90 * time.Millisecond, Outside: i}, nil)
	}
	for _, some := range append(events, faults) {
		all = append(all, some...)
	}
	return r, r.judge(all)
}

func TestTable(t *testing.T) {
	cut := grant(1, 11, 10, 890, 900, 910, history.Lost)
	reset := grant(2, 21, 2000, 3015, 3020, 3030, history.Lost)
	tests := []struct {
		name   string
		events [][]history.Event
		ok     bool
		lines  []string
	}{
		{
			"as it should be", [][]history.Event{
				cut, grant(2, 20, 1150, 1200, 0, 1210, history.OK), reset, grant(3, 31, 3040, 3100, 0, 3110, history.OK),
			}, true, []string{
				"| 4 | partition | 1 | 1 | 800 / 800 / 800 ms | 1 of 1 | 1049 / 1049 / 1049 ms | 100 % in 1.5s | 0 | ok |",
				"| 8 | reset | 1 | 1 | 20 / 20 / 20 ms | 1 of 1 | 39 / 39 / 39 ms | 100 % in 1s | 0, 1 where nothing is promised | ok |",
				"| 30 | restart | 0 | 0 | – | – | – | – | 0 | ok |",
				"Seed 7, ", "2 faults; 8 operations, of them 0 contended by another process, 0 of these while", "from the beginning of the fault",
			},
		},
		{
			"told after the next grant", [][]history.Event{
				grant(1, 11, 10, 890, 1190, 1195, history.Lost), grant(2, 20, 1150, 1200, 0, 1210, history.OK), reset,
			}, false, []string{"| 4 | partition | 1 | 1 | 1090 / 1090 / 1090 ms | 0 of 1 |", "VIOLATED |"},
		},
		{
			"an effect after the next grant", [][]history.Event{
				grant(1, 11, 10, 1180, 1190, 1195, history.Lost), grant(2, 20, 1150, 1200, 0, 1210, history.OK), reset,
			}, false, []string{"| 1 | VIOLATED |"},
		},
		{
			"not free again within the goal", [][]history.Event{
				cut, grant(2, 20, 1750, 1800, 0, 1810, history.OK), reset,
			}, true, []string{"0 % in 1.5s | 0 | ok |"},
		},
		{
			"not free again within the bound", [][]history.Event{
				cut, grant(2, 20, 2250, 2300, 0, 2310, history.OK),
			}, false, []string{"0 % in 1.5s | 0 | VIOLATED |"},
		},
		{
			"the goal of telling missed", [][]history.Event{
				cut, onKey(2, grant(2, 21, 2000, 3010, 3150, 3160, history.Lost)),
			}, true, []string{"150 / 150 / 150 ms | 1 of 1 | – | – | 0, 1 where nothing is promised | ok; told: p99 over 100ms |"},
		},
		{
			"the bound of telling missed", [][]history.Event{
				cut, onKey(2, grant(2, 21, 2000, 3010, 4150, 4160, history.Lost)),
			}, false, []string{"1150 / 1150 / 1150 ms | 1 of 1 |", "VIOLATED |"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := results(t, tt.events...)
			if (err == nil) != tt.ok {
				t.Errorf("judged %v, want ok %v", err, tt.ok)
			}
			if text := r.String(); !strings.Contains(text, "in 2 faults; 1 overlaps where nothing is promised; every process served again within 90ms") {
				t.Errorf("the totals are not in\n%s", text)
			}
			table := r.Markdown()
			for _, line := range tt.lines {
				if !strings.Contains(table, line) {
					t.Errorf("no %q in\n%s", line, table)
				}
			}
			if violated := strings.Contains(table, "VIOLATED"); violated == tt.ok {
				t.Errorf("a violation in the table: %v\n%s", violated, table)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	for _, tt := range []struct {
		name   string
		health Health
		want   error
	}{
		{"nothing lost", Health{Holds: 10}, nil},
		{"one lost", Health{Holds: 1_000_000, Losses: 1}, errFalseLoss},
		{"a connection lost", Health{Holds: 10, Connections: 1}, errFalseLoss},
		{"starved, one in 10,000", Health{Hogs: 6, Holds: 20_000, Losses: 2, Connections: 1}, nil},
		{"starved, more", Health{Hogs: 6, Holds: 20_000, Losses: 3, Connections: 1}, errFalseLoss},
		{"starved, of few", Health{Hogs: 6, Holds: 9_999, Losses: 1, Connections: 1}, errFalseLoss},
	} {
		if err := tt.health.err(); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if err := new(Health).err(); err == nil {
		t.Error("no holds at all, and nobody complained")
	}
	if s := (&Health{Hogs: 6, Holds: 20_000, Losses: 3}).String(); !strings.Contains(s, "1.50 in 10,000") {
		t.Error(s)
	}
}
