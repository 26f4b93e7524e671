package httpmw_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// tenantKey is where the authentication puts the tenant of the user.
type tenantKey struct{}

// tenantID returns the tenant of the authenticated user.
func tenantID(ctx context.Context) (string, bool) {
	id, ok := ctx.Value(tenantKey{}).(string)
	return id, ok
}

// planOf stands for a service's table of plans.
func planOf(_ context.Context, tenant string) string {
	if tenant == "acme" {
		return "business"
	}
	return "basic"
}

// The functions of docs/limits.md.

// exportLimits admits one export for each user, three for each tenant, or ten
// with the better plan, and fifty in all.
func exportLimits(locks sqllock.Locker) *httpmw.Middleware {
	perUser := ratelimit.OneAtATime(locks, "exports of a user")
	perTenant := ratelimit.AtMost(10, locks, "exports of a tenant", ratelimit.WithLimit(exportsOfPlan))
	inAll := ratelimit.AtMost(50, locks, "exports")
	return httpmw.NewStack([]httpmw.Level{
		{Limiter: perUser, Key: httpmw.FromContext(userID)},
		{Limiter: perTenant, Key: httpmw.FromContext(tenantID)},
		{Limiter: inAll, Key: everyone},
	})
}

// exportsOfPlan returns how many exports a tenant may run at a time.
func exportsOfPlan(ctx context.Context, tenant string) int {
	if planOf(ctx, tenant) == "business" {
		return 10
	}
	return 3
}

// everyone is one id for all requests.
func everyone(*http.Request) (string, error) { return "all", nil }

// Three exports for each tenant, one for each user, fifty in all, and more for
// a better plan. Each rejection names the level that is full.
func ExampleNewStack() {
	exports := exportLimits(sqllock.NewMemory())
	begin := func(tenant, user string) {
		ctx := context.WithValue(context.Background(), userKey{}, user)
		r := httptest.NewRequestWithContext(context.WithValue(ctx, tenantKey{}, tenant), http.MethodPost, "/export", nil)
		_, err := exports.AcquireAll(r) // as exports.Handler does; these exports do not end
		if err == nil {
			fmt.Println(user, "of", tenant, "exports")
			return
		}
		w := httptest.NewRecorder()
		exports.Reject(w, r, err)
		var problem struct{ Detail string }
		_ = json.Unmarshal(w.Body.Bytes(), &problem)
		fmt.Println(user, "of", tenant, "gets", w.Code, problem.Detail)
	}
	begin("initech", "ada")
	begin("initech", "ada")
	begin("initech", "grace")
	begin("initech", "mary")
	begin("initech", "joan")
	for _, user := range []string{"eve", "kim", "lee", "pat"} {
		begin("acme", user)
	}
	// Output:
	// ada of initech exports
	// ada of initech gets 429 The limit "exports of a user" admits one request at a time, and another request is in progress. Try again in 1 second.
	// grace of initech exports
	// mary of initech exports
	// joan of initech gets 429 The limit "exports of a tenant" admits 3 requests at a time, and 3 are in progress. Try again in 1 second.
	// eve of acme exports
	// kim of acme exports
	// lee of acme exports
	// pat of acme exports
}

// A Middleware around another one holds its place while the inner one rejects
// or waits. A stack has all places or none.
func ExampleNewStack_incorrect() {
	locks := sqllock.NewMemory()
	perTenant := ratelimit.OneAtATime(locks, "tenant")
	perUser := ratelimit.OneAtATime(locks, "user")
	held, err := perUser.Acquire(context.Background(), "user-1") // the user's first request runs
	if err != nil {
		fmt.Println(err)
		return
	}
	defer held.Unlock()
	rejected := httpmw.WithRejectHandler(func(w http.ResponseWriter, r *http.Request, _ error) {
		lock, err := perTenant.Acquire(r.Context(), "all") // another user of the tenant comes at this moment
		fmt.Println("the other user is kept out:", errors.Is(err, ratelimit.ErrBusy))
		_ = lock.Unlock()
		w.WriteHeader(http.StatusTooManyRequests)
	})

	tenant := httpmw.New(perTenant, everyone)
	user := httpmw.New(perUser, httpmw.FromContext(userID), rejected)
	call(authenticate("user-1", tenant.Handler(user.Handler(http.NotFoundHandler()))), "/export")

	both := httpmw.NewStack([]httpmw.Level{
		{Limiter: perUser, Key: httpmw.FromContext(userID)},
		{Limiter: perTenant, Key: everyone},
	}, rejected)
	call(authenticate("user-1", both.Handler(http.NotFoundHandler())), "/export")
	// Output:
	// the other user is kept out: true
	// 429 Too Many Requests
	// the other user is kept out: false
	// 429 Too Many Requests
}

// In a framework with middleware of its own, AcquireAll and Reject do what
// Handler does.
func ExampleMiddleware_AcquireAll() {
	m := exportLimits(sqllock.NewMemory())
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		locks, err := m.AcquireAll(r)
		if err != nil {
			m.Reject(w, r, err)
			return
		}
		defer locks.Unlock()
		ctx, cancel := locks.Bind(r.Context())
		defer cancel()
		fmt.Println(len(locks), "locks, told to stop:", r.WithContext(ctx).Context().Err() != nil)
	})
	tenant := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, "acme")))
	})
	call(authenticate("user-1", tenant), "/export")
	call(authenticate("user-1", h), "/export") // of no tenant
	// Output:
	// 3 locks, told to stop: false
	// 200 OK
	// 400 Bad Request
}
