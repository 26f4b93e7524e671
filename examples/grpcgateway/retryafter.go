// Package grpcgateway has an error handler for grpc-gateway: a call that package
// grpcmw rejects becomes an HTTP response with Retry-After. Copy it.
package grpcgateway

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// retryAfter writes the response to a call that failed, as the gateway does by
// default, and adds Retry-After. grpcmw says when to try again in the status's
// RetryInfo. The gateway puts that into the body alone, where HTTP clients and
// proxies do not look.
//
// It is for runtime.WithErrorHandler. The gateway does not call that for a method
// that streams its responses: the RetryInfo is then in the body alone.
func retryAfter(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			delay := info.GetRetryDelay().AsDuration()
			seconds := int64((delay + time.Second - 1) / time.Second) // rounded up
			w.Header().Set("Retry-After", strconv.FormatInt(max(1, seconds), 10))
		}
	}
	runtime.DefaultHTTPErrorHandler(ctx, mux, m, w, r, err)
}
