// Package history is the record that processes under test write and the
// campaign's checker reads. It has a line of JSON for each operation on a lock.
// Its moments are those of one clock of the host.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unique"
)

// A Moment is nanoseconds by the host's monotonic clock, the same in every
// process (see Now). 0 means that it did not happen.
type Moment int64

// An Event is one line. Exactly one of its fields is set.
type Event struct {
	Start *Start `json:"start,omitempty"`
	Try   *Try   `json:"try,omitempty"`
	Hold  *Hold  `json:"hold,omitempty"`
	Write *Write `json:"write,omitempty"`
	Fault *Fault `json:"fault,omitempty"`
}

// A Result is how a call ended.
type Result string

// The results.
const (
	OK          Result = "ok"
	Held        Result = "held"        // ErrHeld
	Unavailable Result = "unavailable" // ErrUnavailable or ErrConfig: nothing was granted; of an Unlock: unknown
	Capacity    Result = "capacity"    // ErrCapacity
	GaveUp      Result = "gave up"     // the caller's context ended
	Lost        Result = "lost"        // ErrLost
	Fenced      Result = "fenced"      // ErrFenced
	Closed      Result = "closed"      // ErrClosed
	Failed      Result = "failed"      // any other error; of a Write: it may or may not have been committed
)

// A Kind says what a call wanted, and how its locks may overlap others.
type Kind string

// The kinds. The zero value is an exclusive lock of one key, or of one of
// several.
const (
	Plain  Kind = ""
	Reader Kind = "reader" // may overlap other readers of the key
	Set    Kind = "set"    // TryLockAll, LockAll
	Limit  Kind = "limit"  // Acquire of a Limiter
	Stack  Kind = "stack"  // AcquireAll
)

// UnmarshalText shares equal words: a history has millions of each.
func (r *Result) UnmarshalText(text []byte) error {
	*r = unique.Make(Result(text)).Value()
	return nil
}

// UnmarshalText shares equal words: a history has millions of each.
func (k *Kind) UnmarshalText(text []byte) error {
	*k = unique.Make(Kind(text)).Value()
	return nil
}

// A Limited is a place of a limit. It is empty for other keys.
type Limited struct {
	Limit int64 `json:"limit,omitempty"` // the key of its first place: it tells limits and ids apart
	Most  int   `json:"most,omitempty"`  // the highest that was in force for the id during the call
}

// A Start is the first line of a process.
type Start struct {
	Process int     `json:"process"`
	Version string  `json:"version"` // of the kit
	Keys    []int64 `json:"keys"`    // the numbers of all keys that callers may use, in one order
}

// A Try is one call that wanted a key. One that brought a lock has OK and the
// lock's number, under which its Hold is found.
type Try struct {
	Process int    `json:"process"`
	Key     int64  `json:"key"`
	Call    int64  `json:"call,omitempty"` // unique in the history; a call for several keys has a line for each
	Waits   bool   `json:"waits"`          // Lock, not TryLock
	Kind    Kind   `json:"kind,omitempty"`
	All     int    `json:"all,omitempty"`   // so many lines of the Call have OK, or none has; 0: at most one has
	Until   Moment `json:"until,omitempty"` // its deadline; 0: none
	Limited
	Begin  Moment `json:"begin"`
	End    Moment `json:"end"`
	Result Result `json:"result"`
	Lock   int64  `json:"lock,omitempty"` // unique in the history
}

// A Hold is a lock from its grant to its end. It is written when the lock has
// ended. It is also written when the lock begins (Ended 0), so that a process
// that is killed leaves a trace. The last line of a lock counts.
//
// The lock was certainly valid from From to Valid, since Err was nil then. Its
// holder was told of its loss at Told.
type Hold struct {
	Process int   `json:"process"`
	Key     int64 `json:"key"`
	Lock    int64 `json:"lock"`
	Kind    Kind  `json:"kind,omitempty"`
	Limited
	Listens bool   `json:"listens,omitempty"` // its holder relied on its context, and did not ask Err while it held
	From    Moment `json:"from"`              // after the grant, before the first Err that was nil
	Valid   Moment `json:"valid"`             // before the last Err that was nil
	Told    Moment `json:"told,omitempty"`    // after the holder's context ended, or Err was not nil, with a loss
	Ended   Moment `json:"ended,omitempty"`   // after Unlock returned

	UnlockBegin Moment `json:"unlockBegin,omitempty"`
	Unlock      Result `json:"unlock,omitempty"`
}

// A Write is a transaction behind the fence, by the holder of Lock.
type Write struct {
	Process int    `json:"process"`
	Key     int64  `json:"key"`
	Lock    int64  `json:"lock"`
	Number  int64  `json:"number,omitempty"` // unique in the history, and stored with it
	Begin   Moment `json:"begin"`
	End     Moment `json:"end"`
	Result  Result `json:"result"`
}

// A Fault is something that was done to the system.
type Fault struct {
	Row     int    `json:"row"` // of the fault table
	Name    string `json:"name"`
	Process int    `json:"process,omitempty"` // whom it was done to, from 1; 0: all, or the server
	Begin   Moment `json:"begin"`
	End     Moment `json:"end"`              // when it was mended
	Unmade  bool   `json:"unmade,omitempty"` // it ended in an error, so it may have been made in part
}

// ReadDir reads the histories of all processes that are in a directory.
func ReadDir(dir string) (events []Event, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	for _, name := range files {
		file, failed := os.Open(name)
		if failed != nil {
			return nil, failed
		}
		some, failed := ReadAll(file)
		events, err = append(events, some...), errors.Join(err, failed, file.Close())
	}
	return events, err
}

// ReadAll reads a history. It leaves out a last line that was cut short by the
// death of its writer.
func ReadAll(r io.Reader) ([]Event, error) {
	var events []Event
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("history: line %d: %w", n, err)
		}
		events = append(events, e)
	}
}
