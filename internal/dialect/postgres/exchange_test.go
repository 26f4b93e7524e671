package postgres

import (
	"database/sql/driver"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

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
