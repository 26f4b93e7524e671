package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrUnavailable says that the database did not answer.
var ErrUnavailable = errors.New("queue: database is unavailable")

// safe is err without what a driver adds to it, which may be a host or a user.
func safe(err error) error {
	var server interface{ SQLState() string }
	switch {
	case err == nil, strings.HasPrefix(err.Error(), "sqllock: "), strings.HasPrefix(err.Error(), "queue: "):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer in time", ErrUnavailable)
	case errors.Is(err, sql.ErrTxDone):
		return errors.New("queue: an Effect ended its transaction: leave Commit and Rollback to the queue")
	case !errors.As(err, &server) || away(server.SQLState()):
		return ErrUnavailable
	case server.SQLState() == "42P01":
		return errors.New("queue: a table is missing (42P01): run queue.Schema, or add its schema to the search_path")
	}
	return fmt.Errorf("queue: the database refused a statement (SQLSTATE %s)", server.SQLState())
}

// away reports whether a server's error is about itself, and not about a statement.
func away(state string) bool {
	return strings.HasPrefix(state, "57P") || strings.HasPrefix(state, "08") || strings.HasPrefix(state, "53")
}

const maxErrorLen = 500

// shortened is an error's text as the table takes it: PostgreSQL refuses bytes that are
// not UTF-8, and NUL, and a job whose failure cannot be stored would never end.
func shortened(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
	if len(text) <= maxErrorLen {
		return text
	}
	cut := maxErrorLen
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
