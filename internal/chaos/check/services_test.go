package check

import (
	"testing"
	"time"
)

// A check that had nothing to compare is no success.
func TestCovered(t *testing.T) {
	some := Count{All: 20, Troubled: 10}
	for _, tt := range []struct {
		name   string
		change func(r *ServicesReport)
		ok     bool
	}{
		{"enough", func(*ServicesReport) {}, true},
		{"a kind of call that was never in trouble", func(r *ServicesReport) { r.Replayed.Troubled = 0 }, false},
		{"one leader", func(r *ServicesReport) { r.Leaders = 1 }, false},
		{"no token", func(r *ServicesReport) { r.Ranked = 0 }, false},
		{"no leader by its Status", func(r *ServicesReport) { r.Leading = 0 }, false},
		{"no name", func(r *ServicesReport) { r.Named = 0 }, false},
		{"no wait", func(r *ServicesReport) { r.Waiting = 0 }, false},
		{"no look", func(r *ServicesReport) { r.Looks = Count{} }, false},
		{"looks fail in trouble", func(r *ServicesReport) { r.Blind = Count{All: 50, Troubled: 49} }, true},
		{"looks fail without trouble", func(r *ServicesReport) { r.Blind = Count{All: 50, Troubled: 40} }, false},
		{"no registry", func(r *ServicesReport) {
			r.Registry, r.Named, r.Waiting, r.Looks, r.Ages = false, 0, 0, Count{}, Count{}
		}, true},
	} {
		r := &ServicesReport{
			Advanced: some, Passed: some, Read: some, Paid: some, Replayed: some, InFlight: some, OtherPayload: some, Unanswered: some,
			Terms: some, Leaders: 2, Ranked: 1, Leading: 1, Looks: some, Named: 1, Waiting: 1, Ages: some, Registry: true,
		}
		tt.change(r)
		if err := r.Covered(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// A look that failed shows nothing, and is no violation.
func TestFailedLook(t *testing.T) {
	failed := look(9)
	failed.Look.Failed = true
	report, err := Services(join(turn(1, 1, 1, 20), list(failed)), Left{}, registryParams())
	if err != nil || report.Looks.All != 0 || report.Blind != (Count{All: 1}) {
		t.Errorf("%+v, %v", report, err)
	}
	report, err = Services(list(look(9)), Left{}, ServiceParams{Leaderless: time.Second})
	if err != nil || report.Looks.All != 0 {
		t.Errorf("without a registry %+v, %v", report, err)
	}
}
