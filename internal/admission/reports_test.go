package admission_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/admission"
)

// Each mistake is reported at most once a minute for each route. The next line
// counts the mistakes in between.
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
		report("a", "/x", 1, "times=3")
		report("a", "/x", 0, "")
		time.Sleep(time.Minute)
		report("a", "/x", 1, "times=2")
	})
}

// Routes that a client makes up cost a bounded number of lines and entries. The
// line that they share names none of them.
func TestRoutesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		var reports admission.Reports
		report := func(route string) {
			reports.Log(t.Context(), log, slog.LevelWarn, "a", slog.String("route", route))
		}
		for i := range 5000 {
			report(fmt.Sprint("/", i))
		}
		if got := strings.Count(out.String(), "\n"); got > 1001 {
			t.Errorf("%d lines in a minute, want at most 1001", got)
		}
		time.Sleep(time.Minute)
		out.Reset()
		report("/4999")
		if got := out.String(); !strings.Contains(got, "times=4000") || strings.Contains(got, "route=") {
			t.Errorf("logged %q, want 4000 times without a route", got)
		}
	})
}

// A long route is a client's too. It takes no room in memory or in the log.
func TestRoutesOfAnyLength(t *testing.T) { // not parallel: it looks at the heap
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var reports admission.Reports
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 100 {
		reports.Log(t.Context(), log, slog.LevelWarn, "a", slog.String("route", fmt.Sprint("/", i, strings.Repeat("x", 1<<18))))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if got := int64(after.HeapAlloc) - int64(before.HeapAlloc); got > 4<<20 {
		t.Errorf("%d bytes are kept", got)
	}
	if out.Len() > 1000 || strings.Contains(out.String(), "route=") {
		t.Errorf("logged %d bytes, want one short line", out.Len())
	}
	runtime.KeepAlive(&reports)
}
