package main

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/latchkey-go/latchkey/sqllock/election"
)

// A health is the answer of GET /health.
type health struct {
	Leader bool      `json:"leader"`
	Since  time.Time `json:"since,omitzero"`
	Token  string    `json:"token,omitempty"`
}

func writeHealth(w http.ResponseWriter, s election.Status) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(health{s.Leader, s.Since, s.Token})
}

// A report is a line of a candidate's output: where its health is, or a deed: something
// done by a leader, between two moments in nanoseconds of the machine's clock.
type report struct {
	Address string `json:",omitempty"`

	Number, Term int
	Token        string
	From, To     int64
}

// reports is a candidate's output. It is used by one goroutine at a time.
type reports struct {
	number  int
	encoder *json.Encoder
}

func newReports(out io.Writer, number int) *reports {
	return &reports{number, json.NewEncoder(out)}
}

func (r *reports) address(address string) {
	_ = r.encoder.Encode(report{Address: address})
}

func (r *reports) led(s election.Status, from, to time.Time) {
	_ = r.encoder.Encode(report{Number: r.number, Term: s.Terms, Token: s.Token, From: from.UnixNano(), To: to.UnixNano()})
}
