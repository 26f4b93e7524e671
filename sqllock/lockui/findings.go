package lockui

import (
	"time"

	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A findingView is something that lasts, or that has ended.
type findingView struct {
	Kind  string     `json:"kind"`
	Over  bool       `json:"over"`
	Since string     `json:"since"` // RFC 3339, by the database's clock
	Age   *seconds   `json:"age_seconds,omitempty"`
	Text  string     `json:"text"`
	Key   string     `json:"key,omitempty"`
	PID   int        `json:"pid,omitempty"`
	Cycle *cycleView `json:"cycle,omitempty"`
}

type findingsView struct {
	Database databaseView  `json:"database"`
	Total    int           `json:"total"`
	Open     []findingView `json:"open"` // at most 200
	Past     []findingView `json:"past"` // at most 50, the last one first
}

// findings shows what the looks of this page have found since it is viewed.
func (h *Handler) findings(s *state, _ int) any {
	v := findingsView{Database: s.database(), Total: len(s.open), Open: []findingView{}, Past: []findingView{}}
	for _, f := range s.open[:min(len(s.open), maxRows)] {
		v.Open = append(v.Open, findingOf(f, s.snapshot.At))
	}
	for _, f := range s.past {
		v.Past = append(v.Past, findingOf(f, s.snapshot.At))
	}
	return v
}

// More returns how many findings are not in Open.
func (v findingsView) More() int { return v.Total - len(v.Open) }

func findingOf(f lockwatch.Finding, at time.Time) findingView {
	v := findingView{Kind: string(f.Kind), Over: f.Over, Since: f.Since.UTC().Format(time.RFC3339), Age: since(f.Since, at), Text: meanings[f.Kind]}
	if f.Holder != nil {
		v.Key, v.PID = keyText(f.Holder.Key), f.Holder.Process.PID
		if f.Holder.Lease != nil {
			v.Text = "The session of this lock in the lease table has not renewed its lease, or the lease has expired. An expired lock is free for the next caller."
		}
	}
	if f.Cycle != nil {
		c := cycleOf(*f.Cycle)
		v.Cycle = &c
	}
	return v
}

// diagnosis returns a diagnosis that has seen nothing yet.
func (o options) diagnosis() *lockwatch.Diagnosis {
	if o.long == 0 {
		return lockwatch.NewDiagnosis()
	}
	return lockwatch.NewDiagnosis(lockwatch.WithLongHeld(o.long))
}

// meanings says what a finding means, and what to do.
var meanings = map[lockwatch.FindingKind]string{
	lockwatch.LateHeartbeat:      "The holder has sent no heartbeat for half of its lease, and its server process is idle. It may be frozen or cut off. The server ends its session after the lease.",
	lockwatch.RegistryNotWritten: "The holder's session works, but its heartbeats are not written. Look at the log of that process.",
	lockwatch.HeldLong:           "The lock is held for longer than lockui.WithLongHeld allows. The page's search and the log of the holder's process show whether it still works.",
	lockwatch.WaitCycle:          "Each of these waits for the next one. None goes on until one gives up or is ended.",
}
