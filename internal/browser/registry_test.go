package browser_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Without the registry no view denies waits that it cannot know, and each is
// accessible.
func TestLongWithoutRegistry(t *testing.T) {
	needPrograms(t)
	s := serve(t, pgtest.Database(t), nil)
	dbtest.Execute(t, s.db, "DROP TABLE latchkey_heartbeats, latchkey_waits")
	defer dbtest.Unlock(t, dbtest.Lock(t, s.session, sqllock.Namespace(exports).Key("ada")))
	p := s.tab(t, look{Width: 400, Height: 860})
	for path, text := range map[string]string{
		"":         "not known",
		"locks":    "latchkey_heartbeats is missing",
		"waits":    "No wait is seen",
		"findings": "are not known",
	} {
		p.open(publicPrefix + path)
		p.await("what is not known, on "+path, "document.body.innerText.includes('"+text+"')")
		for _, found := range p.violations() {
			t.Errorf("%s: %v", path, found)
		}
		p.fits(path)
	}
	p.open(publicPrefix + "locks")
	p.search("exprot", "ada")
	p.wants("a search in a mistyped namespace", "Is it mistyped?")
}
