package campaign

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A faultLog is the history of the faults.
type faultLog struct{ file *os.File }

func newFaultLog(dir string) (*faultLog, error) {
	file, err := os.Create(filepath.Join(dir, "faults.jsonl"))
	return &faultLog{file}, err
}

// fault appends a fault, unless it never began.
func (n *faultLog) fault(f history.Fault) error {
	if f.Begin == 0 {
		return nil
	}
	return json.NewEncoder(n.file).Encode(history.Event{Fault: &f})
}

func (n *faultLog) close() error { return n.file.Close() }

// read is the whole history of a campaign.
func read(dir string) (events []history.Event, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		some, err := readFile(name)
		if err != nil {
			return nil, fmt.Errorf("campaign: %s: %w", filepath.Base(name), err)
		}
		events = append(events, some...)
	}
	return events, nil
}

func readFile(name string) ([]history.Event, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return history.ReadAll(file)
}

// staleWrites counts the writes that were committed after one with a later
// token.
func staleWrites(writes []check.Stored) (n int) {
	writes = slices.SortedFunc(slices.Values(writes), func(a, b check.Stored) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.N, b.N))
	})
	for i, w := range writes[min(1, len(writes)):] {
		last := writes[i]
		if last.Key == w.Key && cmp.Or(cmp.Compare(last.Timeline, w.Timeline), cmp.Compare(last.LSN, w.LSN)) > 0 {
			n++
		}
	}
	return n
}
