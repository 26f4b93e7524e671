package fleet

import (
	"database/sql"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
)

// Kills kills n instances at random, one after the other, and starts another one
// for each. Halfway the database crashes. Before each kill, and at the end,
// progress must rise. It is -1 while the database is away.
func (f *Fleet) Kills(t *testing.T, n int, crash func() error, progress func() int, args ...string) {
	t.Helper()
	goesOn := func() {
		before := -1
		lockertest.Eventually(t, "the database responds", func() bool { before = progress(); return before >= 0 })
		lockertest.Eventually(t, "the work goes on", func() bool { return progress() > before })
	}
	for i := range n {
		goesOn()
		if i == n/2 {
			if err := crash(); err != nil {
				t.Fatal(err)
			}
			goesOn()
		}
		running := f.Running()
		if err := running[rand.IntN(len(running))].Kill(); err != nil {
			t.Fatal(err)
		}
		f.MustStart(t, args...)
	}
	goesOn()
}

// Count returns the number that query yields, or -1 while the database is away.
func Count(db *sql.DB, query string) (n int) {
	if db.QueryRow(query).Scan(&n) != nil {
		return -1
	}
	return n
}

// HidesURL runs the program with each DATABASE_URL, which it cannot use. It must
// end with an error that shows no host, and none of ann, her password "secret" and
// her database.
func (f *Fleet) HidesURL(t *testing.T, urls []string, args ...string) {
	t.Helper()
	env := f.Env
	for _, url := range urls {
		f.Env = append(slices.Clone(env), "DATABASE_URL="+url)
		out, err := f.Run(args...)
		if shown := regexp.MustCompile(`ann\b|secret|127\.0\.0\.1|nowhere`).FindString(out); err == nil || shown != "" {
			t.Errorf("%s: it ends with %v, and shows %q\n%s", url, err, shown, out)
		}
	}
	f.Env = env
}
