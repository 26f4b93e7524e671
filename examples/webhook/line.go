package main

import (
	"encoding/json"
	"os"
	"sync"
)

// A line is what a receiver tells its parent, in JSON on its standard output: where it
// serves, and that it is about to kill itself.
type line struct {
	Address string `json:"address,omitempty"`
	Crash   string `json:"crash,omitempty"`
	Event   string `json:"event,omitempty"`
}

var saying sync.Mutex // keeps lines whole

func say(l line) {
	saying.Lock()
	defer saying.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(l) // if the parent has gone we are about to
}
