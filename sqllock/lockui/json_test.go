package lockui

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A request gets JSON if it asks for it, and HTML otherwise.
func TestWantsJSON(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		target, accept string
		want           bool
	}{
		{"/", "", false},
		{"/", "*/*", false},
		{"/", "application/json", true},
		{"/", "application/json, text/plain;q=0.5", true},
		{"/", "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8", false},
		{"/?format=json", "text/html", true},
		{"/?format=html", "application/json", false},
	} {
		r := httptest.NewRequest(http.MethodGet, tt.target, nil)
		r.Header.Set("Accept", tt.accept)
		if got := wantsJSON(r); got != tt.want {
			t.Errorf("%s, %q: %t", tt.target, tt.accept, got)
		}
	}
}

// Every field of the JSON has a name in lower case, and docs/page.md has them all.
func TestFieldsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/page.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[reflect.Type]bool)
	var check func(reflect.Type)
	check = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] || typ.Implements(reflect.TypeFor[json.Marshaler]()) {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			field := typ.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case name == "-":
				continue
			case field.Anonymous:
				check(field.Type)
				continue
			}
			if name == "" || name != strings.ToLower(name) || !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("%v.%s is %q in JSON, which docs/page.md does not have", typ, field.Name, name)
			}
			check(field.Type)
		}
	}
	for _, view := range []any{overviewView{}, locksView{}, waitsView{}, findingsView{}, doctorView{}, searchView{}, terminateView{}} {
		check(reflect.TypeOf(view))
	}
}

// A list without elements is an empty list in JSON, before the database was asked too.
func TestEmptyLists(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
		d.set(stuck)
		for path, fields := range map[string][]string{"/": {"sessions", "limiters", "campaigns"}, "/locks": {"locks"}, "/waits": {"waiters", "cycles"},
			"/findings": {"open", "past"}, "/doctor": {"checks"}} {
			var seen map[string]any
			if err := json.Unmarshal(request(h, path+"?format=json").Body.Bytes(), &seen); err != nil {
				t.Fatal(err)
			}
			for _, field := range fields {
				if list, ok := seen[field].([]any); !ok || len(list) != 0 {
					t.Errorf("%s: %s is %v", path, field, seen[field])
				}
			}
		}
	})
}

// A figure that is not known is missing, as docs/page.md says: 0 would be a figure.
func TestUnknownFiguresAreMissing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, h *Handler, d *fakeDatabase) {
		d.set(stuck)
		before := request(h, "/locks?format=json").Body.String()
		if strings.Contains(before, "age_seconds") {
			t.Errorf("locks that were never read have an age: %s", before)
		}
		d.set(answers(1)) // a role that may not see the start of a process
		time.Sleep(lookTimeout + 2*tick)
		if after := request(h, "/locks?format=json").Body.String(); strings.Contains(after, "process_start_us") || !strings.Contains(after, `"pid": 100`) {
			t.Errorf("locks: %s", after)
		}
		none, err := json.Marshal(sessionOf("main", "", sqllock.Stats{}))
		if err != nil || strings.Contains(string(none), "lock_table") || strings.Contains(string(none), "dialect") || strings.Contains(string(none), "pids") {
			t.Errorf("a Session that has not connected: %s, %v", none, err)
		}
	})
}
