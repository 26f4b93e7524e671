package leasetable

import (
	"reflect"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// elsewhere makes s treat its server as a system that is not PostgreSQL. Such a
// system has neither PostgreSQL's settings nor its write-ahead log, so tokens
// come from a counter.
func elsewhere(s *session) *session {
	t := s.tables.(*postgresTables)
	t.genuine, t.logged = false, false
	return s
}

// The statements for systems that only speak PostgreSQL's SQL do the same as those
// for PostgreSQL.
func TestLeaseTableElsewhere(t *testing.T) {
	t.Parallel()
	_, open := leaseTable(t)
	s, other := elsewhere(open()), elsewhere(open())
	one, two, three := dialect.Key{Space: dialect.Bigint, ID: 1}, dialect.Key{Space: dialect.TwoInts, ID: 2}, dialect.Key{Space: dialect.Bigint, ID: 3}
	b := &dialect.Batch{Try: []dialect.Key{one, two}, Any: [][]dialect.Key{{one, three}}}
	if err := s.Exchange(b); err != nil {
		t.Fatal(err)
	}
	if len(b.Busy) > 0 || !reflect.DeepEqual(b.Won, []int{1}) {
		t.Errorf("free keys: busy %v, won %v", b.Busy, b.Won)
	}
	b = &dialect.Batch{Try: []dialect.Key{one}, Any: [][]dialect.Key{{two, three}}}
	if err := other.Exchange(b); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(b.Busy, []dialect.Key{one}) || !reflect.DeepEqual(b.Won, []int{-1}) {
		t.Errorf("held keys: busy %v, won %v", b.Busy, b.Won)
	}
	b = &dialect.Batch{Release: []dialect.Key{one, {Space: dialect.Bigint, ID: 77}}}
	if err := s.Exchange(b); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(b.NotHeld, []dialect.Key{{Space: dialect.Bigint, ID: 77}}) {
		t.Errorf("not held: %v", b.NotHeld)
	}
	mustHold(t, s, 2)
	check, rival := dialect.SecretCheck{Class: 1, Fingerprint: 1}, dialect.SecretCheck{Class: 1, Fingerprint: 2}
	drop := func(s *session, c dialect.SecretCheck) (bool, error) { return false, s.DropSecret(c) }
	for _, tt := range []struct {
		name     string
		call     func(*session, dialect.SecretCheck) (bool, error)
		s        *session
		check    dialect.SecretCheck
		conflict bool
	}{
		{"a free check", (*session).UseSecret, s, check, false},
		{"the same again", (*session).UseSecret, s, check, false},
		{"another fingerprint", (*session).UseSecret, other, rival, true},
		{"another class", (*session).UseSecret, other, dialect.SecretCheck{Class: 2, Fingerprint: 1}, false},
		{"given back", drop, s, check, false},
		{"another fingerprint then", (*session).UseSecret, other, rival, false},
	} {
		if conflict, err := tt.call(tt.s, tt.check); err != nil || conflict != tt.conflict {
			t.Errorf("%s: conflict %t, %v; want %t", tt.name, conflict, err, tt.conflict)
		}
	}
}

// Tokens rise from holder to holder, even if the counter's table was emptied.
func TestCounter(t *testing.T) {
	t.Parallel()
	db, open := leaseTable(t)
	sessions := []*session{elsewhere(open()), elsewhere(open())}
	var last dialect.Token
	tokenOf := func(s *session) dialect.Token {
		t.Helper()
		if _, ok := s.ReservedToken(); ok {
			t.Error("a token was reserved without a question, of a counter that no exchange asks")
		}
		token, err := s.Token()
		if err != nil {
			t.Fatal(err)
		}
		if token.System == 0 || token.Number <= last.Number {
			t.Errorf("token %v after %v", token, last)
		}
		last = token
		return token
	}
	for i := range 6 {
		first := tokenOf(sessions[i%2])
		if second := tokenOf(sessions[1-i%2]); second.System != first.System {
			t.Errorf("token %v is of another system than %v", second, first)
		}
		if i%2 == 1 {
			mustExecute(t, db, "TRUNCATE latchkey_tokens")
		}
	}
}
