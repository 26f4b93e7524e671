package check

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Share is what processes of one version were granted and wrote.
type Share struct {
	Grants map[history.Kind]int
	After  int // grants of a key whose lock before was another version's
	Writes map[history.Result]int
}

// All is the grants of all kinds together.
func (s *Share) All() (n int) {
	for _, of := range s.Grants {
		n += of
	}
	return n
}

// versions counts the shares of all versions. It checks that a key has one
// number in all processes: otherwise its locks would not exclude each other, and
// all other rules would see two keys.
func (s *sweep) versions(events []history.Event) {
	var first *history.Start
	of := map[int]*Share{} // by process
	for _, e := range events {
		if e.Start == nil {
			continue
		}
		if first == nil {
			first = e.Start
		}
		if !slices.Equal(first.Keys, e.Start.Keys) {
			s.report.found(ErrNumbered, 0, "process %d of %s, unlike process %d of %s", e.Start.Process, e.Start.Version, first.Process, first.Version)
		}
		share := s.report.Versions[e.Start.Version]
		if share == nil {
			share = &Share{Grants: map[history.Kind]int{}, Writes: map[history.Result]int{}}
			s.report.Versions[e.Start.Version] = share
		}
		of[e.Start.Process] = share
	}
	for _, r := range s.keys {
		for i, l := range r.locks {
			if share := of[l.Process]; share != nil {
				share.Grants[l.Kind]++
				if before := i - 1; i > 0 && of[r.locks[before].Process] != nil && of[r.locks[before].Process] != share {
					share.After++
				}
			}
		}
	}
	for _, e := range events {
		if e.Write != nil && of[e.Write.Process] != nil {
			of[e.Write.Process].Writes[e.Write.Result]++
		}
	}
}
