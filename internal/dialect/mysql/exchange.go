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

// exchange carries out a batch without stacks.
func (s *session) exchange(b *dialect.Batch) error {
	text, err := s.ask(context.Background(), s.exchangeOf(b))
	if err == nil {
		err = s.readResponse(b, text)
	}
	if err != nil && !errors.Is(err, dialect.ErrTooLong) { // a statement that is too long is not sent
		s.mayHold(b)
	}
	return dialect.Fail(err)
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
		text = append(text, ",IFNULL(RELEASE_LOCK("...)
		text = s.names.appendName(text, k)
		text = append(text, "),'n')"...)
	}
	for _, k := range b.Try {
		text = append(text, ",IFNULL(GET_LOCK("...)
		text = s.names.appendName(text, k)
		text = append(text, ",0),'n')"...)
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
		text = append(text, " AND IS_FREE_LOCK("...)
		text = s.names.appendName(text, k)
		text = append(text, ") AND GET_LOCK("...)
		text = s.names.appendName(text, k)
		text = append(text, ",0),IF(@latchkey:=@latchkey+1,'"...)
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
	for i := range b.Looks {
		l := &b.Looks[i]
		after, begins := strings.CutPrefix(text, ";")
		if !begins {
			return dialect.ErrNonsense
		}
		var places string
		places, text = after, ""
		if next := strings.IndexByte(after, ';'); next >= 0 {
			places, text = after[:next], after[next:]
		}
		for item := range strings.SplitSeq(strings.TrimSuffix(places, ","), ",") {
			if item == "" {
				continue
			}
			place, err := strconv.Atoi(item)
			if err != nil || !l.Take(place) {
				return dialect.ErrNonsense
			}
			s.held[l.Keys[place]] = struct{}{}
		}
	}
	if text != "" {
		return dialect.ErrNonsense
	}
	return nil
}

// mayHold notes that the session may hold each key of b.
func (s *session) mayHold(b *dialect.Batch) {
	for _, keys := range [][]dialect.Key{b.Release, b.Try} {
		for _, k := range keys {
			s.held[k] = struct{}{}
		}
	}
	for i := range b.Looks {
		for _, k := range b.Looks[i].Keys {
			s.held[k] = struct{}{}
		}
	}
}

// heldAtOnce is how many keys Held asks for in one statement.
const heldAtOnce = 500

// Held implements dialect.Session. It asks for each key that the session may
// hold. MySQL lists a session's locks in no place that every user may read.
func (s *session) Held() (keys []dialect.Key, err error) {
	all := slices.Collect(maps.Keys(s.held))
	for {
		room := s.Room()
		keys, err = s.heldAmong(all, min(heldAtOnce, room))
		if !errors.Is(err, dialect.ErrTooLong) || s.Room() == room {
			break
		}
	}
	if err != nil {
		return nil, dialect.Fail(err)
	}
	clear(s.held)
	for _, k := range keys {
		s.held[k] = struct{}{}
	}
	return keys, nil
}

// heldAmong returns the keys of all that are held. It asks for atOnce keys in
// one statement. Without a key the question is whether the session lives.
func (s *session) heldAmong(all []dialect.Key, atOnce int) (keys []dialect.Key, err error) {
	for first := true; first || len(all) > 0; first = false {
		asked := all[:min(atOnce, len(all))]
		all = all[len(asked):]
		text := append(s.text[:0], "CONCAT(''"...)
		for _, k := range asked {
			text = append(text, ",IFNULL(IS_USED_LOCK("...)
			text = s.names.appendName(text, k)
			text = append(text, ")=CONNECTION_ID(),0)"...)
		}
		s.text = append(text, ')')
		answer, err := s.ask(context.Background(), string(s.text))
		if err != nil {
			return nil, err
		}
		if len(answer) != len(asked) {
			return nil, dialect.ErrNonsense
		}
		for i, k := range asked {
			if answer[i] == done {
				keys = append(keys, k)
			}
		}
	}
	return keys, nil
}
