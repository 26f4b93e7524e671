package postgres

import (
	"database/sql/driver"
	"reflect"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

func TestFormOf(t *testing.T) {
	t.Parallel()
	one, two, pair := dialect.Key{Space: dialect.Bigint, ID: 1}, dialect.Key{Space: dialect.Bigint, ID: -2}, dialect.Key{Space: dialect.TwoInts, ID: 3}
	tests := []struct {
		name  string
		batch dialect.Batch
		form  form
		args  []any
	}{
		{"heartbeat", dialect.Batch{}, 0, nil},
		{"one try", dialect.Batch{Try: []dialect.Key{one}}, tryKeys | single, []any{int64(1)}},
		{"one release", dialect.Batch{Release: []dialect.Key{two}}, releaseKeys | single, []any{int64(-2)}},
		{"one pair", dialect.Batch{Try: []dialect.Key{pair}}, tryKeys << dialect.TwoInts, []any{"{3}"}},
		{"two tries", dialect.Batch{Try: []dialect.Key{one, two}}, tryKeys, []any{"{1,-2}"}},
		{"release and try", dialect.Batch{Release: []dialect.Key{one}, Try: []dialect.Key{two}}, releaseKeys | tryKeys, []any{"{1}", "{-2}"}},
		{"spaces apart", dialect.Batch{Release: []dialect.Key{one, pair, two}}, releaseKeys | releaseKeys<<dialect.TwoInts, []any{"{1,-2}", "{3}"}},
		{"readers", dialect.Batch{Try: []dialect.Key{one.Shared(), two, pair.Shared()}}, tryKeys | tryKeys<<2 | tryKeys<<3, []any{"{-2}", "{1}", "{3}"}},
		{"one reader", dialect.Batch{Release: []dialect.Key{one.Shared()}}, releaseKeys<<2 | single, []any{int64(1)}},
		{"sets", dialect.Batch{All: [][]dialect.Key{{one, pair}, {two}}}, tryAll, []any{`{"{0,1,1,3}","{0,-2}"}`}},
		{"groups", dialect.Batch{Any: [][]dialect.Key{{one, two}, {one}}}, tryAny, []any{`{"{1,-2}","{1}"}`}},
		{
			"all", dialect.Batch{Release: []dialect.Key{one, pair}, Try: []dialect.Key{one, pair}, Any: [][]dialect.Key{{two}}},
			releaseKeys | releaseKeys<<dialect.TwoInts | tryKeys | tryKeys<<dialect.TwoInts | tryAny,
			[]any{"{1}", "{3}", "{1}", "{3}", `{"{-2}"}`},
		},
	}
	for _, tt := range tests {
		f := formOf(&tt.batch)
		var (
			s    statements
			args []any
		)
		for i, arg := range s.argsOf(f, &tt.batch) {
			args = append(args, arg.Value)
			if arg.Ordinal != i+1 {
				t.Errorf("%s: argument %d has the ordinal %d", tt.name, i, arg.Ordinal)
			}
		}
		if f != tt.form || !reflect.DeepEqual(args, tt.args) {
			t.Errorf("%s: form %b with %v, want %b with %v", tt.name, f, args, tt.form, tt.args)
		}
		if got := strings.Count(f.query(true), ", "+"$"); got > len(args) {
			t.Errorf("%s: the statement has more parameters than arguments", tt.name)
		}
	}
}

// Releases stand before tries in the statement, whatever the form.
func TestReleasesGoFirst(t *testing.T) {
	t.Parallel()
	for f := range tryAll { // which gives back what it has taken itself
		query := f.query(true)
		if release, try := strings.LastIndex(query, "unlock"), strings.Index(query, "pg_try"); release >= 0 && try >= 0 && release > try {
			t.Errorf("form %b tries before it releases: %s", f, query)
		}
	}
}

// A response that does not fit the request is an error, never a grant.
func TestAnswerMustFit(t *testing.T) {
	t.Parallel()
	batch := &dialect.Batch{Any: [][]dialect.Key{{{Space: dialect.Bigint, ID: 1}}, {{Space: dialect.Bigint, ID: 2}}}}
	for _, list := range []driver.Value{"{}", "{1}", "{1,1,1}", "{1,2}", "{1,-1}", "nonsense", nil, true} {
		batch.Won = nil
		if err := readResponse(batch, tryAny, []driver.Value{list}); err == nil {
			t.Errorf("an answer of %v to two groups was accepted", list)
		}
	}
	set := &dialect.Batch{All: [][]dialect.Key{{{Space: dialect.Bigint, ID: 1}, {Space: dialect.Bigint, ID: 2}}}}
	for _, list := range []driver.Value{"{}", "{3}", "{-1}", "{1,1}", nil} {
		set.Missing = nil
		if err := readResponse(set, tryAll, []driver.Value{list}); err == nil {
			t.Errorf("an answer of %v to a set of two was accepted", list)
		}
	}
	one := &dialect.Batch{Try: []dialect.Key{{Space: dialect.Bigint, ID: 1}}}
	for _, column := range []driver.Value{"maybe", nil, int64(1)} {
		if err := readResponse(one, tryKeys|single, []driver.Value{column}); err == nil {
			t.Errorf("an answer of %v to one key was accepted", column)
		}
	}
}
