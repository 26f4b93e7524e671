package leasetable

import (
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
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{
		"DO $$ BEGIN CREATE ROLE hidden_from; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$",
		`CREATE SCHEMA kit; CREATE TABLE kit.latchkey_sessions (); CREATE SCHEMA "Other kit"; CREATE TABLE "Other kit".latchkey_sessions ();` +
			` CREATE SCHEMA hidden_from; CREATE TABLE hidden_from.latchkey_sessions (); CREATE SCHEMA shown; CREATE TABLE shown.latchkey_sessions (); GRANT USAGE ON SCHEMA shown TO hidden_from`,
		"SET ROLE hidden_from",
	} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
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
		if _, err := conn.ExecContext(t.Context(), "SELECT set_config('search_path', $1, false)", path); err != nil {
			t.Fatal(err)
		}
		if hidden, err := postgres.Holds(t.Context(), conn, tablesHidden); err != nil || hidden != want {
			t.Errorf("search_path %s: hidden is %v, %v, want %v", path, hidden, err, want)
		}
	}
}
