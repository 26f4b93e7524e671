package leasetable

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// Tables in a schema that the role may not use are found by the search_path as
// the server reads it: a name without quotes is in lower case.
func TestTablesHidden(t *testing.T) {
	t.Parallel()
	db, _ := leaseTableOf(t, "pgx", pgtest.Database(t))
	conn, err := db.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	role := "hidden_from_" + strings.ToLower(rand.Text())
	defer func() { execute(t, conn, "RESET ROLE; DROP OWNED BY "+role+"; DROP ROLE "+role) }()
	for _, statement := range []string{
		"CREATE ROLE " + role,
		`CREATE SCHEMA kit; CREATE TABLE kit.latchkey_sessions (); CREATE SCHEMA "Other kit"; CREATE TABLE "Other kit".latchkey_sessions ();` +
			` CREATE SCHEMA ` + role + `; CREATE TABLE ` + role + `.latchkey_sessions ();` +
			` CREATE SCHEMA shown; CREATE TABLE shown.latchkey_sessions (); GRANT USAGE ON SCHEMA shown TO ` + role,
		"SET ROLE " + role,
	} {
		execute(t, conn, statement)
	}
	for path, want := range map[string]bool{
		"kit, public":         true,
		"Kit,public":          true,
		`"kit", public`:       true,
		`"Kit", public`:       false,
		`public, "Other kit"`: true,
		`"$user", public`:     true,
		"shown, public":       false,
		"":                    false,
	} {
		execute(t, conn, "SELECT set_config('search_path', $1, false)", path)
		if hidden, err := postgres.Holds(t.Context(), conn, tablesHidden); err != nil || hidden != want {
			t.Errorf("search_path %s: hidden is %v, %v, want %v", path, hidden, err, want)
		}
	}
}
