package lockui

import (
	"context"
	"database/sql"
	"net/http"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

const (
	examinationTimeout = 30 * time.Second
	examinationPause   = 10 * time.Second // an older report only is made again
)

type checkFunc func(ctx context.Context) (*lockdoctor.Report, error)

// newCheck returns the examination of db and of the Sessions of o.
func newCheck(db *sql.DB, o options) checkFunc {
	var opts []lockdoctor.Option
	for _, n := range o.sessions {
		opts = append(opts, lockdoctor.WithSession(n.session))
	}
	if o.schema != "" {
		opts = append(opts, lockdoctor.WithSchema(o.schema))
	}
	return func(ctx context.Context) (*lockdoctor.Report, error) { return lockdoctor.Check(ctx, db, opts...) }
}

// A doctor examines the database when a viewer asks for it, and keeps the report for
// all viewers. An examination needs more queries than a look, so it never begins by
// itself.
type doctor struct {
	check checkFunc
	one   chan struct{} // holds a token during an examination

	mu     sync.Mutex         // protects the fields below
	report *lockdoctor.Report // the last one; nil: none yet
	ended  time.Time          // of the last examination
	failed bool               // it gave no report
}

// examine returns after an examination, which may be that of another viewer or of a
// moment ago. It ends with closing.
func (d *doctor) examine(closing context.Context) {
	d.one <- struct{}{}
	defer func() { <-d.one }()
	if closing.Err() != nil || !d.ended.IsZero() && time.Since(d.ended) < examinationPause {
		return
	}
	ctx, cancel := context.WithTimeout(closing, examinationTimeout)
	defer cancel()
	report, err := d.check(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended, d.failed = time.Now(), err != nil
	if err == nil {
		d.report = report
	}
}

type doctorView struct {
	Database databaseView        `json:"database"`
	Problem  string              `json:"problem,omitempty"` // why the last examination has no report
	Taken    string              `json:"taken,omitempty"`   // RFC 3339, by this process's clock; empty: never
	Age      *seconds            `json:"age_seconds,omitempty"`
	State    string              `json:"state,omitempty"` // the worst of Checks
	Checks   []lockdoctor.Result `json:"checks"`
}

// examined shows the last report of the doctor.
func (h *Handler) examined(s *state, _ int) any {
	d := &h.doctor
	d.mu.Lock()
	defer d.mu.Unlock()
	v := doctorView{Database: s.database(), Checks: []lockdoctor.Result{}}
	if d.failed {
		v.Problem = "The last examination took too long, and was given up."
	}
	if d.report != nil {
		v.Taken, v.Age = d.report.At.UTC().Format(time.RFC3339), since(d.report.At, time.Now())
		v.State, v.Checks = string(d.report.Worst()), d.report.Checks
	}
	return v
}

// examine examines the database after a POST, and leads to the report.
func (h *Handler) examine(w http.ResponseWriter, r *http.Request) {
	h.doctor.examine(h.closing)
	address := "doctor"
	if wantsJSON(r) {
		address += "?format=json"
	}
	w.Header().Set("Location", address)
	w.WriteHeader(http.StatusSeeOther)
}
