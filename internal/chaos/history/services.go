package history

// A Serviced is a line about a package around sqllock. One of its fields is set,
// or none.
type Serviced struct {
	Advance *Advance `json:"advance,omitempty"`
	Mark    *Mark    `json:"mark,omitempty"`
	Payment *Payment `json:"payment,omitempty"`
	Age     *Age     `json:"age,omitempty"`
	Look    *Look    `json:"look,omitempty"`
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

// A Payment is one attempt at a request with an idempotency key. A client makes
// attempts until it has a response that is kept.
type Payment struct {
	Process  int    `json:"process"`
	Key      int64  `json:"key"`
	Other    bool   `json:"other,omitempty"` // it has another payload than the key's first request
	Begin    Moment `json:"begin"`
	End      Moment `json:"end"`
	Status   int    `json:"status"`            // 0: no response, or only a part
	Receipt  int64  `json:"receipt,omitempty"` // the number of the effect, by the handler; 0: the response is not the handler's
	Body     string `json:"body,omitempty"`    // a digest of all that the handler wrote
	Replayed bool   `json:"replayed,omitempty"`
	Last     bool   `json:"last,omitempty"` // the client makes no other attempt
}

// Kept reports whether the client keeps the response: it says that the effect is
// committed, or that the payment was declined.
func (p Payment) Kept() bool { return p.Status >= 200 && p.Status < 400 || p.Declined() }

// Declined reports whether the handler declined, without an effect.
func (p Payment) Declined() bool { return p.Status == 402 }

// Stored reports whether the response is certainly that of each later attempt. One
// that declines may not be: the lock of its handler may have been lost. A client
// cannot tell.
func (p Payment) Stored() bool { return p.Kept() && (p.Replayed || !p.Declined()) }

// A Reign is what a leader saw of its term. It is empty for other locks.
type Reign struct {
	Token string `json:"token,omitempty"` // of the Status; empty: the database did not return one
	Leads Moment `json:"leads,omitempty"` // before the last Status that said that this process leads
}

// An Age is what a process was told of how long a key has been held.
type Age struct {
	Process int    `json:"process"`
	Key     int64  `json:"key"`
	Begin   Moment `json:"begin"`
	End     Moment `json:"end"`
	For     Moment `json:"for,omitempty"`
	OK      bool   `json:"ok,omitempty"`
}

// A Look is what an operator outside of the processes saw of all locks.
type Look struct {
	Begin   Moment  `json:"begin"`
	End     Moment  `json:"end"`
	Failed  bool    `json:"failed,omitempty"` // the database did not say what the locks are
	Holders []Shown `json:"holders,omitempty"`
	Waiters []Poll  `json:"waiters,omitempty"`
}

// A Shown is a lock in a Look. The fields after Key are empty if the registry
// says nothing of it.
type Shown struct {
	Key     int64  `json:"key"`
	Session int64  `json:"session,omitempty"`
	Process int    `json:"process,omitempty"` // that the holder's text names
	Lock    int64  `json:"lock,omitempty"`    // that the lock's name tells of
	For     Moment `json:"for,omitempty"`     // how long it has been held then
}

// A Poll is callers of a Session that wait, in a Look.
type Poll struct {
	Key     int64 `json:"key"`
	Session int64 `json:"session"`
	Callers int   `json:"callers"`
}
