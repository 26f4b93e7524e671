package main

import (
	"regexp"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/subprocess/programtest"
)

// The demonstration ends leaders by an exit, a kill and a freeze. Its account is
// right, and it leaves nothing behind.
func TestLongDemo(t *testing.T) {
	const endings, each = 6, 2 // of leaders, and of leaders in each way
	places := map[string]func(t *testing.T) string{
		"throwaway server": func(*testing.T) string { return "" },
		"DATABASE_URL":     func(t *testing.T) string { return pgtest.Database(t) },
	}
	for name, url := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := programtest.Command(t)
			c.Env = append(c.Env, "DATABASE_URL="+url(t))
			out := programtest.Output(t, c)
			for pattern, want := range map[string]int{
				`(?m)^LEADER +FROM +TO +WORK +TOKEN$`:                            1,
				`(?m)^instance \d+ +\d+\.\d+ s +\d+\.\d+ s +\d+ +[0-9a-f-]{50}$`: endings + 1,
				`(?m)^instance \d+ +exit +instance \d+ +\S+s +leads: \[\d+\]`:    each,
				`(?m)^instance \d+ +kill -9 +instance \d+ +\S+s +leads: \[\d+\]`: each,
				// One that was frozen neither answers nor, awake, calls itself
				// leader.
				`(?m)^instance \d+ +freeze +instance \d+ +\S+s +leads: \[\d+\], 1 silent +leads: \[\d+\]$`: each,
				`(?m)^OK: \d+ terms, never two at once`:                                                    1,
			} {
				if found := regexp.MustCompile(pattern).FindAllString(out, -1); len(found) < want {
					t.Errorf("%d times %s, want %d, in\n%s", len(found), pattern, want, out)
				}
			}
		})
	}
}
