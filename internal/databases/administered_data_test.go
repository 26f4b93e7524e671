package databases

import (
	"database/sql"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// A shop is what a tenant's service does with the tables of the kit: it raises a
// watermark, and stores responses.
type shop struct {
	*tenant
	db      *sql.DB
	handler http.Handler
	paid    atomic.Int32
	marked  int64
}

func (p *tenant) shop(locks sqllock.Locker) *shop {
	s := &shop{tenant: p, db: p.pool()}
	s.handler = idempotency.New(s.db, ratelimit.OneAtATime(locks, "tests"), func(*http.Request) (string, error) { return "leaky-ada", nil },
		idempotency.WithLogger(p.log.Logger())).
		Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			s.paid.Add(1)
			w.WriteHeader(http.StatusCreated)
		}))
	return s
}

// advance raises the watermark by one, or returns why not.
func (s *shop) advance() error {
	tx, err := s.db.BeginTx(s.t.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := watermark.Advance(s.t.Context(), tx, s.key(1), s.marked+1); err != nil {
		return err
	}
	s.marked++
	return tx.Commit()
}

// isClosed checks that the shop pays nothing and says why: in the error of its
// watermark, and in its log.
func (s *shop) isClosed(says string) {
	s.t.Helper()
	if err := s.advance(); err == nil || !strings.Contains(err.Error(), says) {
		s.t.Errorf("Advance: %v, want an error that mentions %q", err, says)
	}
	before := s.paid.Load()
	r := post(s.t.Context(), s.handler, "leaky-key", "10")
	if r.Code < 500 {
		s.t.Errorf("status %d, want 500 or 503", r.Code)
	}
	if s.paid.Load() > before && !strings.Contains(s.log.String(), says) {
		s.t.Error("the handler ran, and the log does not say why its effect was not committed")
	}
	s.wantDiscreet(r.Body.String())
	s.wantDiscreet(s.log.String())
}

// isOpen checks that the shop pays.
func (s *shop) isOpen() {
	s.t.Helper()
	if err := s.advance(); err != nil {
		s.t.Errorf("Advance: %v", err)
	}
	if r := post(s.t.Context(), s.handler, "leaky-key", "10"); r.Code != http.StatusCreated {
		s.t.Errorf("status %d, want 201", r.Code)
	}
}

// A role that may not use the tables of watermarks and responses is told so, and
// nothing happens without them. When it may again, all goes on.
func TestWatermarkAndIdempotencyWithoutRights(t *testing.T) {
	eachTenant(t, func(t *testing.T, p *tenant) {
		locks := p.session()
		s := p.shop(locks)
		p.inDatabase("REVOKE ALL ON latchkey_watermarks, latchkey_responses FROM %[2]s")
		s.isClosed("SELECT")
		p.grant()
		s.isOpen()
		p.inDatabase("REVOKE USAGE ON SCHEMA kit FROM %[2]s")
		s.isClosed("there is no table")
		p.grant()
		s.isOpen()
		if n := locks.Stats().Losses; n != 0 {
			t.Errorf("%d connections were lost", n)
		}
	})
}
