package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
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
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		return event{}, errors.New("the body is not an event in JSON")
	}
	if e.ID == "" || len(e.ID) > 255 || e.Account == "" {
		return event{}, errors.New("an event needs an id of up to 255 bytes and an account")
	}
	e.payload = sha256.Sum256(body)
	return e, nil
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
