package lockdoctor

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/sqllock"
)

// questionTimeout bounds each check, so that one that gets no response does not
// keep the others from theirs.
const questionTimeout = 5 * time.Second

// Check examines the database of db, the pool itself and the Sessions that are
// given, and reports each finding with the reason and the fix.
//
// Check changes nothing in the database, apart from [WithKeyedNamespace]. It uses
// two connections of the pool at a time. It takes advisory locks with random keys
// for some milliseconds, as sqllock.Open does, to see whether they exclude. A
// database that is away, or a pool that is full, is a Result too.
//
// The error is that of ctx if ctx ends before the report is complete, even if
// the driver is stuck. Otherwise it is nil. Check may be called at any time,
// also under load, and by several goroutines. It panics if db is nil.
func Check(ctx context.Context, db *sql.DB, opts ...Option) (*Report, error) {
	if db == nil {
		panic("lockdoctor: Check needs a *sql.DB that is not nil")
	}
	s := &subject{db: db, pool: db.Stats()}
	for _, opt := range opts {
		opt(&s.options)
	}
	r := &Report{At: time.Now()}
	if err := s.run(ctx, r, check{name: "connection", examine: connection}); err != nil {
		return nil, err
	}
	for _, c := range slices.Concat(local, map[sqllock.Dialect][]check{
		sqllock.PostgreSQL: postgresChecks, sqllock.MySQL: mysqlChecks, sqllock.SQLite: sqliteChecks,
	}[s.dialect]) {
		if err := s.run(ctx, r, c); err != nil {
			return nil, err
		}
	}
	r.Dialect = s.dialect
	return r, nil
}

// A subject is what Check examines, and what it has learnt so far.
type subject struct {
	options
	db   *sql.DB
	pool sql.DBStats // before the first connection was taken

	dialect  sqllock.Dialect // empty: the database does not say, and no check of its own can be made
	lease    time.Duration   // the shortest of the Sessions and the default
	silent   string          // why the database may not be asked any more; empty: it may be
	findings []Result        // of the check under way

	server postgresServer // once learn has been called
	tables []table        // of this version, once find has been called
}

// A check is one examination. What the later ones of a list ask makes sense only
// if the earlier ones have passed.
//
// examine calls warn and wrong for what it finds. fine is the reason of a result
// without findings. The error says why the check could not be made, and is a
// skip if it does not apply.
type check struct {
	name    string
	examine func(ctx context.Context, s *subject) (fine string, err error)
	needs   func(s *subject, ctx context.Context) error // is called before; nil: nothing
	local   bool                                        // it asks no database
}

// local are the checks that ask no database.
var local = []check{{name: "pool", examine: poolSize, local: true}, {name: "session", examine: sessions, local: true}}

// run makes one check and adds its result to r. It returns the error of ctx.
//
// If the check does not end in time, run leaves it behind: a driver may be
// stuck. Its result is then that the server did not respond.
func (s *subject) run(ctx context.Context, r *Report, c check) error {
	timeout := bound.Of(questionTimeout)
	began := time.Now()
	own := *s // a copy, so that a check that was left behind changes nothing
	after, err := dbconn.Within(ctx, timeout, func(ctx context.Context) (*subject, error) {
		var fine string
		var err error
		switch {
		case own.silent != "" && !c.local:
			err = skip(own.silent)
		case c.needs != nil:
			err = c.needs(&own, ctx)
		}
		if err == nil {
			fine, err = c.examine(ctx, &own)
		}
		own.conclude(fine, err)
		return &own, nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		*s = *after
	} else {
		s.conclude("", err)
	}
	if time.Since(began) > timeout*4/5 {
		s.silent = "not asked, since the question before got no response in time"
	}
	result := worst(s.findings)
	result.Name = c.name
	r.Checks = append(r.Checks, result)
	s.findings = nil
	return nil
}
