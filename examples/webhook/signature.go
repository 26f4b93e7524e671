package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	signatureHeader = "Webhook-Signature"
	maxBody         = 1 << 20

	// tolerance is the maximum age of a signature. A webhook that an
	// eavesdropper sends again later is rejected. Duplicates within tolerance
	// are once's concern.
	tolerance = 5 * time.Minute
)

// sign returns the value of the header: the time, and the HMAC-SHA-256 of the time
// and body.
func sign(secret, body []byte, at time.Time) string {
	when := strconv.FormatInt(at.Unix(), 10)
	return "t=" + when + ",v1=" + hex.EncodeToString(mac(secret, when, body))
}

func mac(secret []byte, when string, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(when + "."))
	h.Write(body)
	return h.Sum(nil)
}

// signed reports whether signature is that of body, and not too old.
func signed(secret, body []byte, signature string, now time.Time) bool {
	when, sum, ok := strings.Cut(strings.TrimPrefix(signature, "t="), ",v1=")
	seconds, err := strconv.ParseInt(when, 10, 64)
	got, hexErr := hex.DecodeString(sum)
	if !ok || err != nil || hexErr != nil || !hmac.Equal(got, mac(secret, when, body)) {
		return false
	}
	age := now.Sub(time.Unix(seconds, 0))
	return -tolerance < age && age < tolerance
}

// verify calls next for a webhook whose signature is right, with the event in its
// context. The event's id is a key only after that: a stranger who could choose it
// could keep an event out.
func verify(secret []byte, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, "the body is too large, or broke off", http.StatusRequestEntityTooLarge)
			return
		}
		if !signed(secret, body, r.Header.Get(signatureHeader), time.Now()) {
			http.Error(w, "the signature is wrong or too old", http.StatusUnauthorized)
			return
		}
		e, err := parseEvent(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r = r.WithContext(withEvent(r.Context(), e))
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// An event is the content of a webhook.
type event struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	Amount  int64  `json:"amount"` // in cents

	payload [sha256.Size]byte // hash of the body
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
	if strings.ContainsRune(e.ID+e.Account, 0) { // PostgreSQL's text has none: the event could never be processed
		return event{}, errors.New("an event's id and account must not hold a NUL")
	}
	e.Amount, e.payload = *sent.Amount, sha256.Sum256(body)
	return e, nil
}

// trace returns what may be logged of e, since its id may be personal data. It is
// the first half of encode(sha256(event_id::bytea), 'hex').
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

// eventID returns the key of the limit: the id of an event whose signature is
// right.
func eventID(ctx context.Context) (string, bool) {
	e, ok := eventFrom(ctx)
	return e.ID, ok
}
