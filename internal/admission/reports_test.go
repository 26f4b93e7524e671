package admission_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/admission"
)

// Each mistake is reported at most once a minute for each route.
func TestOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		var reports admission.Reports
		report := func(text, route string, lines int, want string) {
			t.Helper()
			out.Reset()
			reports.Log(t.Context(), log, slog.LevelWarn, text, slog.String("route", route), slog.String("namespace", "export"))
			if got := strings.Count(out.String(), "\n"); got != lines || !strings.Contains(out.String(), want) {
				t.Errorf("%s on %s: logged %q, want %d lines with %s", text, route, out.String(), lines, want)
			}
		}
		report("a", "/x", 1, `level=WARN msg=a namespace=export route=/x`+"\n")
		report("a", "/x", 0, "")
		report("a", "/y", 1, "route=/y")
		report("b", "/x", 1, "msg=b")
		report("a", "", 1, "namespace=export\n")
		time.Sleep(time.Minute - time.Nanosecond)
		report("a", "/x", 0, "")
		time.Sleep(time.Nanosecond)
		report("a", "/x", 1, "route=/x")
		report("a", "/x", 0, "")
	})
}

// Routes that a client makes up cost a bounded number of lines and entries. The
// line that they share names none of them. So it is with long routes, which take
// no room in the log.
func TestRoutesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		var reports admission.Reports
		report := func(route string, lines int) {
			t.Helper()
			out.Reset()
			reports.Log(t.Context(), log, slog.LevelWarn, "a", slog.String("route", route))
			if got := out.String(); strings.Count(got, "\n") != lines || strings.Contains(got, "route=") {
				t.Errorf("logged %q, want %d lines without a route", got, lines)
			}
		}
		report(strings.Repeat("x", 1<<18), 1)
		report(strings.Repeat("y", 1<<18), 0)
		for i := range 5000 {
			reports.Log(t.Context(), log, slog.LevelWarn, "a", slog.String("route", fmt.Sprint("/", i)))
		}
		if got := strings.Count(out.String(), "\n"); got > 1000 {
			t.Errorf("%d lines in a minute, want at most 1000", got)
		}
		time.Sleep(time.Minute)
		report("/4999", 1)
		report("/4998", 0)
	})
}
