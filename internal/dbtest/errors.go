package dbtest

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// State returns the SQLSTATE of err, or "" if it has none.
func State(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// sqlState matches an SQLSTATE in an error. It may have the digits of a port.
var sqlState = regexp.MustCompile(`SQLSTATE [0-9A-Z]{5}`)

// TellsNothing checks that the text of err contains no part of dsn that
// identifies a server, a user or a database.
func TellsNothing(tb testing.TB, err error, dsn string) {
	tb.Helper()
	u, parseErr := url.Parse(dsn)
	if parseErr != nil {
		tb.Fatal(parseErr)
	}
	text := sqlState.ReplaceAllString(err.Error(), "")
	secrets := []string{dsn, u.Hostname(), u.Port(), strings.TrimPrefix(u.Path, "/")}
	for _, secret := range secrets {
		if len(secret) > 3 && strings.Contains(text, secret) {
			tb.Errorf("the error %q contains a part of the DSN: %q", err, secret)
		}
	}
}

// NamesOnce checks that err matches each of sentinels, and that its text
// contains the text of each exactly once.
func NamesOnce(tb testing.TB, what string, err error, sentinels ...error) {
	tb.Helper()
	for _, sentinel := range sentinels {
		if !errors.Is(err, sentinel) || strings.Count(err.Error(), sentinel.Error()) != 1 {
			tb.Errorf("%s: %v, want %q in it, once", what, err, sentinel)
		}
	}
}
