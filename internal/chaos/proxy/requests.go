package proxy

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// A Request is what a statement of a Session carries.
type Request uint8

// The kinds; one statement may carry both.
const (
	Acquire Request = 1 << iota
	Release
)

// requests reads the client's half of a connection to PostgreSQL: which
// prepared statements it has, and which of them it executes.
type requests struct {
	started    bool
	rest       []byte             // of a message that has not come to its end
	statements map[string]Request // by name
}

func newRequests() *requests { return &requests{statements: map[string]Request{}} }

// read takes what the client sent next, and returns what is carried by the
// prepared statements that are executed in it.
func (r *requests) read(sent []byte) (carried Request) {
	r.rest = append(r.rest, sent...)
	for {
		kind, body, ok := r.message()
		if !ok {
			return carried
		}
		name, after, _ := bytes.Cut(body, []byte{0})
		switch kind {
		case 'P': // Parse: name, query
			query, _, _ := bytes.Cut(after, []byte{0})
			r.statements[string(name)] = carriedBy(string(query))
		case 'B': // Bind: portal, name
			statement, _, _ := bytes.Cut(after, []byte{0})
			carried |= r.statements[string(statement)]
		}
	}
}

// carriedBy is what a statement with this text carries. Names of functions are
// all there is to go by.
func carriedBy(query string) (carried Request) {
	if strings.Contains(query, "pg_try_advisory_lock") {
		carried |= Acquire
	}
	if strings.Contains(query, "pg_advisory_unlock") {
		carried |= Release
	}
	return carried
}

// message takes the first whole message from what has come. The first of a
// connection have no kind.
func (r *requests) message() (kind byte, body []byte, ok bool) {
	head := 0 // bytes before the length
	if r.started {
		head = 1
	}
	if len(r.rest) < head+4 {
		return 0, nil, false
	}
	length := int(binary.BigEndian.Uint32(r.rest[head:]))
	if length < 4 || len(r.rest) < head+length {
		return 0, nil, false
	}
	whole := r.rest[:head+length]
	r.rest = r.rest[head+length:]
	if r.started {
		return whole[0], whole[5:], true
	}
	// Of version 3; anything else asks for encryption, and begins again.
	r.started = length >= 8 && binary.BigEndian.Uint32(whole[4:])>>16 == 3
	return 0, whole[4:], true
}
