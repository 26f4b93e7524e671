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

// A Protocol is what client and server speak.
type Protocol uint8

// The protocols.
const (
	PostgreSQL Protocol = iota
	MySQL
)

// read takes what a client sent next, and returns the requests that are carried
// out then. A statement of a Session in MySQL is one text, and is sent at once.
func (p Protocol) read(said *requests, sent []byte) Request {
	if p == MySQL {
		return carriedBy(string(sent))
	}
	return said.read(sent)
}

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
		case 'Q': // Query, without a preparation
			carried |= carriedByText(string(body))
		}
	}
}

// marks are texts that only statements of one kind have. Names of functions and
// tables are all there is to go by.
var marks = []struct {
	text string
	Request
}{
	{"pg_try_advisory_lock", Acquire}, {"pg_advisory_unlock", Release},
	{"IFNULL(GET_LOCK(", Acquire}, {"IFNULL(RELEASE_LOCK(", Release},
	{"won AS (INSERT", Acquire}, {"given AS (DELETE", Release}, // of a lease table
}

// carriedBy is what a statement with this text carries.
func carriedBy(query string) (carried Request) {
	for _, mark := range marks {
		if strings.Contains(query, mark.text) {
			carried |= mark.Request
		}
	}
	return carried
}

// carriedByText is carriedBy for a statement without a preparation. Only those
// of a lease table are sent in this way; the proof of a Session sends others.
func carriedByText(query string) Request {
	if !strings.Contains(query, "latchkey_locks") {
		return 0
	}
	return carriedBy(query)
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
