package proxy

import (
	"encoding/binary"
	"strings"
	"testing"
)

// message is one of the client's messages; kind 0 for the first of a
// connection.
func message(kind byte, body string) string {
	length := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	if kind == 0 {
		return string(length) + body
	}
	return string(kind) + string(length) + body
}

var (
	startup = message(0, "\x00\x03\x00\x00user\x00x\x00\x00")
	tls     = message(0, "\x04\xd2\x16\x2f")
	synced  = message('S', "")
)

func parse(name, query string) string { return message('P', name+"\x00"+query+"\x00\x00\x00") }
func bind(name string) string         { return message('B', "\x00"+name+"\x00\x00\x00\x00\x00\x00\x00") }

const (
	takes = "SELECT pg_backend_pid(), pg_try_advisory_lock($1::bigint)"
	gives = "SELECT pg_backend_pid(), pg_advisory_unlock($1::bigint)"
	both  = "SELECT pg_backend_pid(), ARRAY(SELECT pg_advisory_unlock(k)), ARRAY(SELECT pg_try_advisory_lock(k))"
)

func TestRequests(t *testing.T) {
	tests := []struct {
		name string
		sent string
		want Request
	}{
		{"nothing", startup, 0},
		{"only prepared", startup + parse("a", takes) + synced, 0},
		{"acquire", startup + parse("a", takes) + bind("a") + synced, Acquire},
		{"release", startup + parse("a", takes) + parse("b", gives) + bind("b") + synced, Release},
		{"both", startup + parse("", both) + bind("") + synced, Acquire | Release},
		{"after a question about encryption", tls + startup + parse("a", takes) + bind("a"), Acquire},
		{"a heartbeat", startup + parse("h", "SELECT pg_backend_pid()") + parse("a", takes) + bind("h"), 0},
		{"a simple query", startup + message('Q', takes+"\x00"), 0},
		{"a lease table's acquire", startup + message('Q', "WITH won AS (INSERT INTO latchkey_locks)\x00"), Acquire},
		{"a lease table's release", startup + message('Q', "WITH given AS (DELETE FROM latchkey_locks)\x00"), Release},
		{"prepared anew", startup + parse("", takes) + parse("", gives) + bind(""), Release},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 3, 1000} { // however it is cut
			t.Run(tt.name, func(t *testing.T) {
				r := newRequests()
				var got Request
				for rest := tt.sent; rest != ""; {
					n := min(size, len(rest))
					got |= r.read([]byte(rest[:n]))
					rest = rest[n:]
				}
				if got != tt.want {
					t.Errorf("in pieces of %d: carries %b, want %b", size, got, tt.want)
				}
			})
		}
	}
}

// A text of MySQL carries what it says, and its proof does not count.
func TestMySQLRequests(t *testing.T) {
	for sent, want := range map[string]Request{
		"\x00\x00\x00\x00\x03SELECT 1,IFNULL(GET_LOCK('a',0),0)":     Acquire,
		"\x00\x00\x00\x00\x03SELECT 1,IFNULL(RELEASE_LOCK('a'),0)":   Release,
		"\x00\x00\x00\x00\x03SELECT CONCAT(1, GET_LOCK('proof', 0))": 0,
	} {
		if got := MySQL.read(newRequests(), []byte(sent)); got != want {
			t.Errorf("%q carries %b, want %b", sent, got, want)
		}
	}
}

// The reply that is lost is the one to the request aimed at.
func TestLoseReply(t *testing.T) {
	e := newEcho(t)
	p, conn := start(t, e, false)
	prepared := startup + parse("a", takes) + parse("b", gives)
	send(t, conn, prepared)
	expect(t, conn, prepared)
	lost := p.LoseReply(Release)
	send(t, conn, bind("a"))
	expect(t, conn, bind("a"))
	select {
	case <-lost:
		t.Fatal("a reply was lost that should not be")
	default:
	}
	send(t, conn, bind("b"))
	if err := endOf(t, conn); !strings.Contains(err.Error(), "EOF") {
		t.Errorf("the connection ended with %v", err)
	}
	<-lost
	_ = ended(t, e)
	conn = dial(t, p)
	send(t, conn, prepared+bind("b"))
	expect(t, conn, prepared+bind("b"))
	p.LoseReply(Acquire)
	p.Spare()
	send(t, conn, bind("a"))
	expect(t, conn, bind("a"))
}
