package lockui

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

type overviewView struct {
	Database  databaseView   `json:"database"`
	Totals    *totals        `json:"totals,omitempty"` // nil: the database has not answered yet
	Sessions  []sessionView  `json:"sessions"`
	Limiters  []limiterView  `json:"limiters"`
	Campaigns []campaignView `json:"campaigns"`
}

// totals are of the whole database.
type totals struct {
	Held     int `json:"held"`
	Waiting  int `json:"waiting"`
	Cycles   int `json:"cycles"`
	Findings int `json:"findings"`
}

// A sessionView is a Session of this process, at the moment of the request.
type sessionView struct {
	Name           string            `json:"name"`
	Dialect        string            `json:"dialect,omitempty"`
	Held           int               `json:"held"`
	Waiting        int               `json:"waiting"`
	Connections    int               `json:"connections"` // 0 while the database is away, or closed while idle
	IdleClosed     bool              `json:"idle_closed,omitempty"`
	Processes      []int64           `json:"pids,omitempty"` // server processes of its connections, as far as they are known
	Lease          seconds           `json:"lease_seconds"`
	Heartbeat      seconds           `json:"heartbeat_seconds"`
	LeaseRemaining seconds           `json:"lease_remaining_seconds"`
	RoundTrip      seconds           `json:"round_trip_seconds"`
	RoundTripMax   seconds           `json:"round_trip_max_seconds"`
	KeysPerBatch   float64           `json:"keys_per_batch"` // the mean since the Session began
	Exchanges      uint64            `json:"exchanges"`
	Granted        uint64            `json:"granted"`
	Denied         uint64            `json:"denied"`
	Canceled       uint64            `json:"canceled"`
	Failed         uint64            `json:"failed"`
	Losses         uint64            `json:"losses"` // of connections
	LocksLost      uint64            `json:"locks_lost"`
	LossesBy       map[string]uint64 `json:"losses_by"`
	TableUsed      int               `json:"lock_table_used,omitempty"`
	TableSize      int               `json:"lock_table_size,omitempty"` // 0: not known
	Watched        bool              `json:"watched"`
}

// A limiterView is a limiter of this process, at the moment of the request.
type limiterView struct {
	Namespace string            `json:"namespace"`
	Limit     int               `json:"limit"`
	Active    int               `json:"active"`
	AtLimit   int               `json:"at_limit"`
	Queued    int               `json:"queued"`
	Oldest    seconds           `json:"oldest_seconds"`
	Requests  map[string]uint64 `json:"requests"` // by result
}

// A campaignView is a campaign of this process, at the moment of the request.
type campaignView struct {
	Name   string   `json:"name"`
	Leader bool     `json:"leader"`
	Leads  *seconds `json:"leads_seconds,omitempty"`
	Terms  int      `json:"terms"`
	Reason string   `json:"reason,omitempty"` // why it does not lead
}

// overview shows this process from memory, and the figures of the database.
func (h *Handler) overview(s *state, _ int) any {
	v := overviewView{Database: s.database(), Sessions: []sessionView{}, Limiters: []limiterView{}, Campaigns: []campaignView{}}
	if !s.taken.IsZero() {
		v.Totals = &totals{Held: s.view.Held, Waiting: s.view.Callers(), Cycles: len(s.view.Cycles), Findings: len(s.open)}
	}
	for i, n := range h.options.sessions {
		v.Sessions = append(v.Sessions, sessionOf(n.name, n.session.Dialect(), n.session.Stats()))
		for _, c := range n.session.Connections() {
			if c.PID != 0 {
				v.Sessions[i].Processes = append(v.Sessions[i].Processes, c.PID)
			}
		}
	}
	for _, l := range h.options.limiters {
		v.Limiters = append(v.Limiters, limiterOf(l))
	}
	for _, n := range h.options.campaigns {
		v.Campaigns = append(v.Campaigns, campaignOf(n.name, n.campaign.Status(), time.Now()))
	}
	return v
}

func sessionOf(name string, d sqllock.Dialect, stats sqllock.Stats) sessionView {
	return sessionView{
		Name: name, Dialect: string(d), Held: stats.Held, Waiting: stats.Waiting, Connections: stats.Connections, IdleClosed: stats.IdleClosed,
		Lease: secondsOf(stats.Lease), Heartbeat: secondsOf(stats.Heartbeat), LeaseRemaining: secondsOf(stats.LeaseRemaining),
		RoundTrip: seconds(stats.RoundTrip.Seconds()), RoundTripMax: seconds(stats.RoundTripMax.Seconds()),
		KeysPerBatch: mean(stats.ExchangeKeys), Exchanges: stats.Exchanges, Granted: stats.Granted, Denied: stats.Denied, Canceled: stats.Canceled, Failed: stats.Failed,
		Losses: stats.Losses, LocksLost: stats.LocksLost, LossesBy: stats.LossesBy, TableUsed: stats.TableUsed, TableSize: stats.TableSize,
		Watched: stats.Watched,
	}
}

// LeaseLow reports whether the lease ends before two heartbeats have had their time.
func (v sessionView) LeaseLow() bool {
	return !v.IdleClosed && v.Lease > 0 && v.LeaseRemaining < 2*v.Heartbeat
}

// tableFull is the part of the lock table above which Sessions deny new keys: see
// [sqllock.WithMaxHeld].
const tableFull = 0.6

// TableFull reports whether the server's lock table has no room for new keys.
func (v sessionView) TableFull() bool {
	return v.TableSize > 0 && float64(v.TableUsed) >= tableFull*float64(v.TableSize)
}

// Causes lists the causes of losses that have happened, with their numbers.
func (v sessionView) Causes() string { return pairsText(v.LossesBy) }

// Keys returns KeysPerBatch as a text.
func (v sessionView) Keys() string { return countText(v.KeysPerBatch) }

func limiterOf(l Limiter) limiterView {
	f := inside.FiguresOf(l)
	return limiterView{Namespace: string(l.Namespace()), Limit: l.Limit(), Active: f.Active, AtLimit: f.AtLimit, Queued: f.Queued,
		Oldest: secondsOf(f.Oldest), Requests: f.Requests}
}

// Results lists the results that have occurred, with their numbers.
func (v limiterView) Results() string { return pairsText(v.Requests) }

// pairsText lists the counts that are not 0, by their names.
func pairsText(counts map[string]uint64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] > 0 {
			all = append(all, strings.ReplaceAll(name, "_", " ")+" "+strconv.FormatUint(counts[name], 10))
		}
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// mean returns the mean of the values in x, or 0 without one.
func mean(x sqllock.Histogram) float64 {
	if x.Count == 0 {
		return 0
	}
	return x.Sum / float64(x.Count)
}

func campaignOf(name string, status election.Status, now time.Time) campaignView {
	v := campaignView{Name: name, Leader: status.Leader, Leads: since(status.Since, now), Terms: status.Terms}
	switch err := status.Err; {
	case status.Leader || err == nil:
	case errors.Is(err, sqllock.ErrLost):
		v.Reason = "Its lock was lost."
	case errors.Is(err, election.ErrResigned):
		v.Reason = "It was asked to resign."
	case errors.Is(err, sqllock.ErrClosed):
		v.Reason = "Its Session is closed."
	case errors.Is(err, sqllock.ErrUnavailable), errors.Is(err, sqllock.ErrConfig), errors.Is(err, sqllock.ErrCapacity), errors.Is(err, sqllock.ErrNotExclusive):
		v.Reason = "The database does not grant locks."
	default:
		v.Reason = "Its last term ended with an error."
	}
	return v
}
