package history

// A Serviced is a line about a package around sqllock. One of its fields is set,
// or none.
type Serviced struct {
	Advance *Advance `json:"advance,omitempty"`
	Mark    *Mark    `json:"mark,omitempty"`
}

// An Advance is a transaction that raises the watermark of a key and stores a
// row. Its result is OK if it was committed, Passed after ErrPassed, and else
// Fenced, Lost or Failed.
type Advance struct {
	Process int    `json:"process"`
	Key     int64  `json:"key"`
	To      int64  `json:"to"`
	Number  int64  `json:"number"`         // unique in the history, and stored with the row
	Lock    int64  `json:"lock,omitempty"` // whose fence comes first; 0: there is none
	Begin   Moment `json:"begin"`
	End     Moment `json:"end"`
	Result  Result `json:"result"`
}

// Passed is the Result of an Advance that was rejected, since the watermark is
// as high already.
const Passed Result = "passed"

// A Mark is a watermark that a process has read.
type Mark struct {
	Process int    `json:"process"`
	Key     int64  `json:"key"`
	At      int64  `json:"at"`           // 0 without a watermark
	Is      bool   `json:"is,omitempty"` // the key has one
	Begin   Moment `json:"begin"`
	End     Moment `json:"end"`
}
