package main

import (
	"maps"
	"time"

	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A snapshotJSON is the form of latchkey ps --json. A field that is not known is
// left out.
type snapshotJSON struct {
	At      time.Time             `json:"at"`
	Locks   []lockwatch.Row       `json:"locks"`
	Waiters []lockwatch.Row       `json:"waiters"`
	Cycles  []lockwatch.Cycle     `json:"cycles"`
	Tables  map[string]tableState `json:"tables"`                      // "read", or why what a table has is not known
	Foreign bool                  `json:"unknown_namespace,omitempty"` // no lock that is known is of the namespace of KEY
}

type tableState = lockwatch.TableState

func newSnapshotJSON(v *lockwatch.View, foreign bool) snapshotJSON {
	tables := map[string]tableState{"latchkey_heartbeats": v.Heartbeats, "latchkey_waits": v.Snapshot.Waits, "latchkey_locks": v.Leases}
	maps.DeleteFunc(tables, func(_ string, state tableState) bool { return state == "" })
	return snapshotJSON{v.At, v.Locks(0, v.Held), v.Waiting(v.Waits), append([]lockwatch.Cycle{}, v.Cycles...), tables, foreign}
}
