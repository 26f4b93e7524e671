package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
)

// An event is what a webhook tells of.
type event struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	Amount  int64  `json:"amount"` // in cents

	payload [sha256.Size]byte // hash of the body as it came
}

// parseEvent reads body, whose signature has been checked.
func parseEvent(body []byte) (event, error) {
	var sent struct {
		event
		Amount *int64 `json:"amount"` // nil: there is none, which is not 0
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		return event{}, errors.New("the body is not an event in JSON")
	}
	e := sent.event
	if e.ID == "" || len(e.ID) > 255 || e.Account == "" || sent.Amount == nil {
		return event{}, errors.New("an event needs an id of up to 255 bytes, an account and an amount")
	}
	if strings.ContainsRune(e.ID+e.Account, 0) { // PostgreSQL's text has none: it would never be processed
		return event{}, errors.New("an event's id and account must not hold a NUL")
	}
	e.Amount, e.payload = *sent.Amount, sha256.Sum256(body)
	return e, nil
}

// trace is what may be logged of e, whose id may be personal data: the first half of
// encode(sha256(event_id::bytea), 'hex').
func (e event) trace() slog.Attr {
	sum := sha256.Sum256([]byte(e.ID))
	return slog.String("event_sha256", hex.EncodeToString(sum[:16]))
}

type eventKey struct{}

func withEvent(ctx context.Context, e event) context.Context {
	return context.WithValue(ctx, eventKey{}, e)
}

func eventFrom(ctx context.Context) (event, bool) {
	e, ok := ctx.Value(eventKey{}).(event)
	return e, ok
}

// eventID is the limit's key: the id of an event whose signature is right.
func eventID(ctx context.Context) (string, bool) {
	e, ok := eventFrom(ctx)
	return e.ID, ok
}
