package waiting

import "context"

// Terms are what a Limiter asks of the engine beyond its public methods. The
// zero value asks for nothing.
type Terms struct {
	// Rank is the place in the line of waiters in this process: lower ranks
	// first, equal ranks by arrival. With 0 everywhere the first to come is the
	// first to be served. Lock and LockAny read it.
	Rank uint64

	// Beyond are, beside the groups of TryEach, the numbers of keys beyond each
	// group (Key.Int64, in the bigint space). It may be shorter than the groups,
	// or nil. Each key of Beyond that is held, here or elsewhere, takes away one
	// place of the group: the group is full unless more of its keys are free than
	// keys of Beyond are held.
	Beyond [][]int64
}

// termsKey is the context key of Terms.
type termsKey struct{}

// WithTerms returns ctx with t. The engine does not change t.
func WithTerms(ctx context.Context, t Terms) context.Context {
	return context.WithValue(ctx, termsKey{}, &t)
}

// TermsOf returns the Terms in ctx, or the zero value.
func TermsOf(ctx context.Context) Terms {
	if t, ok := ctx.Value(termsKey{}).(*Terms); ok {
		return *t
	}
	return Terms{}
}
