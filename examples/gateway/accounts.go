package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
)

// A plan is what a tenant has bought: how many requests may be in flight at a
// time.
type plan struct{ perKey, perTenant int }

var plans = map[string]plan{"free": {1, 2}, "pro": {4, 20}}

// An account is what an API key stands for. The limits count its ids, which the
// client cannot choose.
type account struct {
	SHA256 string `json:"sha256"` // of the API key, in hexadecimal
	ID     string `json:"id"`     // of the API key: not a secret
	Tenant string `json:"tenant"`
	Plan   string `json:"plan"` // one of plans
}

// accounts has the account of each API key, by the key's SHA-256. A real gateway
// has them in its database, and looks them up behind a cache.
type accounts map[string]account

// readAccounts reads a file with a JSON list of accounts.
func readAccounts(name string) (accounts, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, errors.New("the file of accounts cannot be read")
	}
	var list []account
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, errors.New("the file of accounts is not a JSON list")
	}
	table := make(accounts)
	for _, a := range list {
		_, known := plans[a.Plan]
		if len(a.SHA256) != hex.EncodedLen(sha256.Size) || a.ID == "" || a.Tenant == "" || !known {
			return nil, errors.New("an account needs sha256, id, tenant and a plan that is known")
		}
		table[strings.ToLower(a.SHA256)] = a
	}
	return table, nil
}

type accountKey struct{}

// authenticate gives next requests whose API key is known, with their account in
// the context. The others get 401.
func (t accounts) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		sum := sha256.Sum256([]byte(key))
		a, ok := t[hex.EncodeToString(sum[:])]
		if !ok || !strings.EqualFold(scheme, "Bearer") {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "The request needs a valid API key.", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey{}, a)))
	})
}

// accountFrom returns the account of a request that was authenticated.
func accountFrom(ctx context.Context) (account, bool) {
	a, ok := ctx.Value(accountKey{}).(account)
	return a, ok
}

// The id that a request counts for on each level, and the limit there. A change of
// plan holds from the next request on; it ends none.

func keyID(ctx context.Context) (string, bool) {
	a, ok := accountFrom(ctx)
	return a.ID, ok
}

func tenantID(ctx context.Context) (string, bool) {
	a, ok := accountFrom(ctx)
	return a.Tenant, ok
}

func keyLimit(ctx context.Context, _ string) int {
	a, _ := accountFrom(ctx)
	return plans[a.Plan].perKey
}

func tenantLimit(ctx context.Context, _ string) int {
	a, _ := accountFrom(ctx)
	return plans[a.Plan].perTenant
}
