package lockui

import (
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

type overviewView struct {
	Database  databaseView   `json:"database"`
	Totals    totals         `json:"totals"`
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
	Name         string  `json:"name"`
	Dialect      string  `json:"dialect"`
	Held         int     `json:"held"`
	Waiting      int     `json:"waiting"`
	Connections  int     `json:"connections"`
	Losses       uint64  `json:"losses"`
	RoundTrip    seconds `json:"round_trip_seconds"`
	RoundTripMax seconds `json:"round_trip_max_seconds"`
	Watched      bool    `json:"watched"`

	Graphs []sparkline `json:"-"`
}

// A limiterView is a limiter of this process, at the moment of the request.
type limiterView struct {
	Namespace string `json:"namespace"`
	Limit     int    `json:"limit"`
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
	v.Totals = totals{Held: len(s.locks), Cycles: len(s.cycles), Findings: len(s.open)}
	if s.snapshot != nil {
		for i := range s.snapshot.Waiters {
			v.Totals.Waiting += callers(&s.snapshot.Waiters[i])
		}
		v.Totals.Waiting += len(s.snapshot.Blocked)
	}
	for i, n := range h.options.sessions {
		v.Sessions = append(v.Sessions, sessionOf(n.name, n.session.Dialect(), n.session.Stats(), h.histories[i]))
	}
	for _, l := range h.options.limiters {
		v.Limiters = append(v.Limiters, limiterOf(l))
	}
	for _, n := range h.options.campaigns {
		v.Campaigns = append(v.Campaigns, campaignOf(n.name, n.campaign.Status(), time.Now()))
	}
	return v
}

func sessionOf(name string, d sqllock.Dialect, stats sqllock.Stats, past *history) sessionView {
	return sessionView{
		Name: name, Dialect: string(d), Held: stats.Held, Waiting: stats.Waiting, Connections: stats.Connections, Losses: stats.Losses,
		RoundTrip: seconds(stats.RoundTrip.Seconds()), RoundTripMax: seconds(stats.RoundTripMax.Seconds()), Watched: stats.Watched,
		Graphs: past.graphs(),
	}
}

func limiterOf(l *ratelimit.Limiter) limiterView {
	return limiterView{Namespace: string(l.Namespace()), Limit: l.Limit()}
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
