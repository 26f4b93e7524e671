package connectmw_test

import (
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latchkey-go/latchkey/grpcmw/connectmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A client of grpc-go reads the code and the details. Its own retries do not
// repeat the call: they need a response without headers, which connect-go does
// not send over net/http.
func TestClientOfGRPC(t *testing.T) {
	var calls atomic.Int32
	h := handlers(nothing, limited(ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrHeld}, namespace), connectmw.Header("User")))
	at, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		h.ServeHTTP(w, r)
	}), true)
	target, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(target.Host, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
		"maxAttempts": 3, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "user", alice)
	err = conn.Invoke(ctx, service+"Unary", wrapperspb.String(alice), new(message))
	if status.Code(err) != codes.ResourceExhausted || calls.Load() != 1 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
	var retry time.Duration
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			retry = info.GetRetryDelay().AsDuration()
		}
	}
	if retry < time.Second {
		t.Errorf("RetryInfo %v", retry)
	}
}
