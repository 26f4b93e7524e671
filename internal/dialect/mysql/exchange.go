package mysql

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// The statement that carries a batch computes one text. It has a letter for
// each key of Release and then of Try, and then the places of each look. MySQL
// allows no more than 4,096 columns.
const (
	done   = '1'
	not    = '0'
	noLock = 'n' // NULL: no session holds the key of a release, or the server could not tell
)

// Exchange implements dialect.Session.
func (s *session) Exchange(b *dialect.Batch) error {
	return dialect.InParts(b, s.exchange)
}

// exchange carries out a batch without stacks. A statement that fails half-way
// keeps what it had taken, and MySQL lists a session's locks in no place that every
// user may read. So such a failure ends the session.
func (s *session) exchange(b *dialect.Batch) error {
	text, err := s.ask(context.Background(), s.exchangeOf(b))
	if err == nil {
		err = s.readResponse(b, text)
	}
	err = dialect.Fail(err)
	var failure *dialect.Failure
	if errors.As(err, &failure) && dialect.Survives(failure) && failure != dialect.ErrTooLong { // which was not sent
		ended := *failure
		ended.Kind = dialect.Gone
		return &ended
	}
	return err
}

// Room returns how many keys a batch may carry in the worst case, in which each
// is a look of its own.
func (s *session) Room() int {
	const (
		other  = 128 // bytes of the statement, without the keys
		digits = 10  // of a key's place, and of the number of keys that a look wants
	)
	dearest := len(s.appendLook(nil, &dialect.Look{Keys: []dialect.Key{{}}, Want: 1})) + digits
	return max((s.limit-other)/dearest, 1)
}

// exchangeOf returns the expression that carries out b, releases first. It has
// no arguments, since drivers would prepare the statement then.
func (s *session) exchangeOf(b *dialect.Batch) string {
	text := append(s.text[:0], "CONCAT(''"...)
	for _, k := range b.Release {
		text = s.names.appendCall(text, ",IFNULL(RELEASE_LOCK(", k, "),'n')")
	}
	for _, k := range b.Try {
		text = s.names.appendCall(text, ",IFNULL(GET_LOCK(", k, ",0),'n')")
	}
	for i := range b.Looks {
		text = s.appendLook(text, &b.Looks[i])
	}
	s.text = append(text, ')')
	return string(s.text)
}

// appendLook appends what takes the first free keys of l, as many as l wants. It
// asks IS_FREE_LOCK first. Another look of the batch may have taken the key, and
// GET_LOCK would grant it again. A variable counts the keys.
func (s *session) appendLook(text []byte, l *dialect.Look) []byte {
	text = append(text, ",IF(@latchkey:=0,'',';')"...)
	for i, k := range l.Keys {
		text = append(text, ",IF(@latchkey<"...)
		text = strconv.AppendInt(text, int64(l.Want), 10)
		text = s.names.appendCall(text, " AND IS_FREE_LOCK(", k, ")")
		text = s.names.appendCall(text, " AND GET_LOCK(", k, ",0),IF(@latchkey:=@latchkey+1,'")
		text = strconv.AppendInt(text, int64(i), 10)
		text = append(text, ",',''),'')"...)
	}
	return text
}

// readResponse reads the text into b, and notes what the session holds now.
func (s *session) readResponse(b *dialect.Batch, text string) error {
	n := len(b.Release) + len(b.Try)
	if len(text) < n {
		return dialect.ErrNonsense
	}
	for i, k := range b.Release {
		switch text[i] {
		case done:
		case not, noLock:
			b.NotHeld = true
		default:
			return dialect.ErrNonsense
		}
		delete(s.held, k)
	}
	for i, k := range b.Try {
		switch text[len(b.Release)+i] {
		case done:
			s.held[k] = struct{}{}
		case not:
			b.Busy = append(b.Busy, k)
		case noLock:
			return &dialect.Failure{Kind: dialect.Statement, Reason: "the server could not tell whether a lock was free"}
		default:
			return dialect.ErrNonsense
		}
	}
	return s.readLooks(b, text[n:])
}

// readLooks reads the text for Looks. Of each it begins with a semicolon, and
// has the places of the keys that were taken, each with a comma.
func (s *session) readLooks(b *dialect.Batch, text string) error {
	lists := strings.Split(text, ";")
	if lists[0] != "" || len(lists) != 1+len(b.Looks) {
		return dialect.ErrNonsense
	}
	for i, list := range lists[1:] {
		l := &b.Looks[i]
		for item := range strings.SplitAfterSeq(list, ",") {
			if item == "" { // after the last comma
				continue
			}
			place, err := strconv.Atoi(strings.TrimSuffix(item, ","))
			if err != nil || !l.Take(place) {
				return dialect.ErrNonsense
			}
			s.held[l.Keys[place]] = struct{}{}
		}
	}
	return nil
}

// Held implements dialect.Session. Each statement that was sent has succeeded, so
// the session knows what it holds if it lives.
func (s *session) Held() ([]dialect.Key, error) {
	if _, err := s.ask(context.Background(), "'1'"); err != nil {
		return nil, dialect.Fail(err)
	}
	return slices.Collect(maps.Keys(s.held)), nil
}
