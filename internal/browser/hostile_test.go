package browser_test

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// hostile are texts that a client could have the page show.
var hostile = []string{
	`"><script>alert('latchkey')</script>`,
	`'><img src=x onerror=alert('latchkey')>`,
	`</svg><script>alert('latchkey')</script>`,
	`</td></table></main><iframe src=//attacker.example></iframe>`,
	`</title></textarea></style><script>alert('latchkey')//`,
	`<link rel=stylesheet href=//attacker.example/x.css>`,
	`<form action=//attacker.example><button>End session</button>`,
	`javascript:alert('latchkey')`,
	`<a href="javascript:alert('latchkey')">x</a>`,
	`{{.}} {{template "live"}} ${alert('latchkey')}`,
	"a\n\nevent: view\ndata: <script>alert('latchkey')</script>\n\n",
	"a\r\rdata: <img src=x onerror=alert('latchkey')>",
	"\u202Ereversed\u202C \u2066isolated",
	`&lt;b&gt; &#60;script&#62;`,
	"\x01\x1b[31m\x7f\u0085\u2028\ufeff",
	"\x00<script>alert('latchkey')</script>", // PostgreSQL stores no NUL
	strings.Repeat("W", 200),
}

// A client whose names are full of markup is shown as text. It runs nothing, sends
// nothing and changes nothing on the page.
func TestLongHostileClient(t *testing.T) {
	needPrograms(t)
	dsn := pgtest.Database(t)
	owner := dbtest.Session(t, "pgx", dsn)
	var options []lockui.Option
	for _, text := range hostile {
		options = append(options, lockui.WithSession(text, owner))
		if !strings.ContainsAny(text, ":#") { // which no namespace has
			options = append(options, lockui.WithLimiter(ratelimit.OneAtATime(owner, sqllock.Namespace(text))))
		}
	}
	s := serve(t, dsn, nil, append(options, lockui.WithNames())...)
	begin(t, dsn, s)
	writeNamespaces(t, s)

	for _, l := range []look{{}, {NoScript: true, Width: 400, Height: 800}} {
		p := s.tab(t, l)
		for _, view := range []string{"", "locks", "waits", "findings"} {
			p.open(publicPrefix + view)
			if !l.NoScript {
				p.await("a live page", "document.getElementById('mode').textContent.startsWith('Live')")
				version := evaluate[string](p, "document.querySelector('main time').dateTime")
				p.await("a second update", "document.querySelector('main time').dateTime !== "+strconv.Quote(version))
			}
			p.isIntact(view)
			if view == "" || view == "locks" {
				p.wants(view, hostile[:5]...)
			}
			if view == "locks" {
				p.wants(view, `\u202ereversed\u202c`)
				p.showsHolders()
			}
		}
		p.examine()
		p.isIntact("doctor")
		p.open(publicPrefix + "locks")
		p.search(hostile[0], hostile[1])
		p.isIntact("search")
		if strings.Contains(p.text(), hostile[1]) {
			t.Error("the result repeats the id")
		}
		p.open(publicPrefix + "terminate?" + url.Values{"pid": {hostile[0]}, "start": {hostile[1]}}.Encode())
		if kind := evaluate[string](p, "document.contentType"); kind != "text/plain" || strings.Contains(p.text(), "alert") {
			t.Errorf("an address full of markup: the response is %s: %s", kind, p.text())
		}
	}
}

// showsHolders fails the test if a long name pushes the holder of a lock off a wide
// screen.
func (p *tab) showsHolders() {
	p.t.Helper()
	const beyond = "window.innerWidth >= 1280 ? [...document.querySelectorAll('main tbody tr')].filter(r => r.cells[1].getBoundingClientRect().right > window.innerWidth).length : 0"
	if n := evaluate[int](p, beyond); n > 0 {
		p.t.Errorf("the holders of %d locks are off the screen", n)
	}
}

// begin makes hostile clients: Sessions whose holder and whose locks' names are
// hostile, and other programs with such an application_name that hold a lock or
// wait for one.
func begin(t *testing.T, dsn string, s *site) {
	t.Helper()
	for n, text := range hostile {
		session := dbtest.Session(t, "pgx", withApplication(t, dsn, text), sqllock.WithRegistry(""),
			sqllock.WithHolder(text), sqllock.WithHeartbeat(200*time.Millisecond))
		dbtest.Lock(t, session, exportKey(n)).SetName(text)

		db := dbtest.Open(t, "postgres", withApplication(t, dsn, text))
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		if _, err := tx.Exec("SELECT pg_advisory_xact_lock($1)", 1000+n); err != nil {
			t.Fatal(err)
		}
	}
	lockertest.Eventually(t, "the names are in the database", func() bool {
		seen := s.snapshot()
		for _, text := range hostile {
			if !slices.ContainsFunc(seen.Holders, func(h lockwatch.Holder) bool {
				return h.Registration != nil && h.Registration.Name == strings.ReplaceAll(text, "\x00", "?")
			}) {
				return false
			}
		}
		return true
	})
}

// writeNamespaces writes into the registry what no Session would. It lasts until
// each Session's next heartbeat.
func writeNamespaces(t *testing.T, s *site) {
	t.Helper()
	if _, err := s.db.Exec("UPDATE latchkey_heartbeats SET namespace = name"); err != nil {
		t.Fatal(err)
	}
}

// withApplication returns dsn with an application_name, of which PostgreSQL keeps
// 63 bytes.
func withApplication(t *testing.T, dsn, name string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("application_name", strings.ReplaceAll(name, "\x00", ""))
	u.RawQuery = q.Encode()
	return u.String()
}

// isIntact fails the test if the page has an element that its own templates do not
// make, or a link that leads elsewhere.
func (p *tab) isIntact(what string) {
	p.t.Helper()
	if n := evaluate[int](p, "document.querySelectorAll('body > *').length"); n != 4 {
		p.t.Errorf("%s: the body has %d children, want the skip link, header, main and footer", what, n)
	}
	for _, selector := range []string{"script:not([src])", "img", "iframe", "style", "main link", "main script", "main main", "[onerror]", "[style]", "form:not([action=search]):not([action=terminate]):not([action=doctor])"} {
		if n := evaluate[int](p, "document.querySelectorAll("+strconv.Quote(selector)+").length"); n != 0 {
			p.t.Errorf("%s: the page has %d elements %s", what, n, selector)
		}
	}
	elsewhere := evaluate[[]string](p, `[...document.querySelectorAll("[href], [src], [action]")].map(e => e.href || e.src || e.action).filter(u => typeof u === "string" && !u.startsWith(location.origin + "/"))`)
	if len(elsewhere) > 0 {
		p.t.Errorf("%s: links to %q", what, elsewhere)
	}
}
