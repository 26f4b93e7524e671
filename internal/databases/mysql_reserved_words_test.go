package databases

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// reservedInMySQL lists words that are reserved in MySQL 8.0, 8.4 or 9.
// MariaDB, on which the tests run, allows them as names.
const reservedInMySQL = " cube cume_dist dense_rank empty except first_value function generated get grouping groups" +
	" intersect io_after_gtids io_before_gtids json_table lag last_value lateral lead library manual master_bind nth_value ntile" +
	" of optimizer_costs over parallel percent_rank qualify rank recursive row row_number rows stored system tablesample" +
	" virtual window "

// No statement of sqllock uses a word that MySQL reserves as a name, including
// the statements of the schemas.
func TestMySQLReservedWords(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	interceptor, db := rewritten(t, o)
	var (
		mu         sync.Mutex
		statements = slices.Concat(sqllock.Schema(sqllock.MySQL), sqllock.FenceSchema(sqllock.MySQL), watermark.Schema(sqllock.MySQL))
	)
	record := func(query string) string {
		mu.Lock()
		defer mu.Unlock()
		statements = append(statements, query)
		return query
	}
	interceptor.change.Store(&record)
	s, err := mysql.Dialect{}.Open(context.Background(), db, settings)
	must(t, err)
	defer s.Destroy()
	exchange(t, s, dialect.Batch{Release: big(4), Try: big(1), Looks: []dialect.Look{{Keys: big(2, 3), Want: 1}}})
	held(t, s)
	token, err := s.Token()
	must(t, err)
	_, err = usertx.Fence(t.Context(), mustBegin(t, db), big(1)[0], token)
	must(t, err)
	mu.Lock()
	defer mu.Unlock()
	for _, statement := range statements {
		for line := range strings.Lines(statement) {
			code, _, _ := strings.Cut(line, "--")
			words := strings.FieldsFunc(strings.ToLower(code), func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') })
			for _, word := range words {
				if strings.Contains(reservedInMySQL, " "+word+" ") {
					t.Errorf("%q is a reserved word in MySQL: %.80s", word, line)
				}
			}
		}
	}
	for _, mark := range []string{"GET_LOCK", "IS_USED_LOCK", "INSERT", "UPDATE", "latchkey_fence"} {
		if !strings.Contains(strings.Join(statements[1:], "\n"), mark) {
			t.Errorf("no statement with %s was recorded", mark)
		}
	}
}
