package main

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

// An event is a line of JSON that an instance writes to its standard output: the
// first says where it serves, each other that an export was done, and when.
type event struct {
	HTTP string `json:"http,omitempty"`
	GRPC string `json:"grpc,omitempty"`

	User  string    `json:"user,omitempty"`
	Begin time.Time `json:"begin,omitzero"`
	End   time.Time `json:"end,omitzero"`
}

// events writes events.
type events struct {
	mu      sync.Mutex // protects encoder, and keeps lines whole
	encoder *json.Encoder
}

func newEvents(w io.Writer) *events { return &events{encoder: json.NewEncoder(w)} }

func (e *events) ready(httpAddress, grpcAddress string) {
	e.write(event{HTTP: httpAddress, GRPC: grpcAddress})
}

func (e *events) exported(user string, begin, end time.Time) {
	e.write(event{User: user, Begin: begin, End: end})
}

func (e *events) write(ev event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.encoder.Encode(ev) // if the parent has gone we are about to
}
