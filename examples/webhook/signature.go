package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	signatureHeader = "Webhook-Signature"
	maxBody         = 1 << 20

	// tolerance is how old a signature may be: what somebody has overheard is of no
	// use later. Duplicates within it are what the rest of this program is about.
	tolerance = 5 * time.Minute
)

// sign makes the value of the header: when, and the HMAC-SHA-256 of when and body.
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

// signed reports whether signature is body's, and fresh.
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

// verify lets a webhook through to next if its signature is right, with the event in
// its context.
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
