package browser_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// While the database is away an open page says so, and keeps what it knows. When
// the database is back the page goes on, without a reload.
func TestLongDatabaseAway(t *testing.T) {
	needPrograms(t)
	cluster := pgtest.New(t)
	dsn, err := cluster.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, dsn, nil)
	c := startClient(t, clientOrders{Driver: "pgx", DSN: dsn, Holder: "one"})
	c.hold(1)
	p := s.tab(t, look{})
	p.open(publicPrefix + "locks")
	p.await("the lock", shows(exportKey(1)))
	evaluate[bool](p, "window.opened = true") // gone after a reload
	const away = "document.querySelector('#database.away') !== null"

	if err := cluster.Freeze(); err != nil {
		t.Fatal(err)
	}
	p.await("the database is away", away)
	p.await("readers of the screen are told", "document.getElementById('announce').textContent.includes('not answer')")
	if !evaluate[bool](p, shows(exportKey(1))) {
		t.Error("the page forgets the lock while the database is away")
	}
	for _, v := range p.violations() {
		t.Error(v)
	}
	// A reload finds the same.
	fresh := s.tab(t, look{})
	fresh.open(publicPrefix + "locks")
	fresh.wants("a new page", "Database: away")
	if !evaluate[bool](fresh, shows(exportKey(1))) {
		t.Error("a new page does not know the lock")
	}

	if err := cluster.Thaw(); err != nil {
		t.Fatal(err)
	}
	p.await("the database is back", "!("+away+")")
	if _, err := s.db.Exec("SELECT pg_advisory_lock($1)", exportKey(2).Int64()); err != nil { // no Session, which may need a moment more
		t.Fatal(err)
	}
	p.await("a new lock", shows(exportKey(2)))
	if !evaluate[bool](p, "window.opened === true") {
		t.Error("the page was loaded again")
	}
}
