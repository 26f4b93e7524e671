package grpcgateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/examples/quickstart/exportpb"
	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(leaktest.Check(m.Run()))
}

// A service does work under a limit.
type service struct {
	exportpb.UnimplementedExportServiceServer

	work func(context.Context) error
}

func (s service) Export(ctx context.Context, _ *exportpb.ExportRequest) (*exportpb.ExportResponse, error) {
	return &exportpb.ExportResponse{}, s.work(ctx)
}

// newGateway returns the gateway of a service. With annotations in the service's
// .proto, protoc-gen-grpc-gateway generates what the route does here.
func newGateway(service exportpb.ExportServiceClient, onError runtime.ErrorHandlerFunc) (*runtime.ServeMux, error) {
	gateway := runtime.NewServeMux(runtime.WithErrorHandler(onError))
	err := gateway.HandlePath(http.MethodPost, "/exports", func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		_, out := runtime.MarshalerForRequest(gateway, r)
		ctx, err := runtime.AnnotateContext(r.Context(), gateway, r, exportpb.ExportService_Export_FullMethodName)
		var response *exportpb.ExportResponse
		if err == nil {
			response, err = service.Export(ctx, &exportpb.ExportRequest{})
		}
		ctx = runtime.NewServerMetadataContext(r.Context(), runtime.ServerMetadata{})
		if err != nil {
			runtime.HTTPError(ctx, gateway, out, w, r, err)
			return
		}
		runtime.ForwardResponseMessage(ctx, gateway, out, w, r, response)
	})
	return gateway, err
}

// newService serves work under a limit for the token of a call, and returns its
// address.
func newService(t *testing.T, locks sqllock.Locker, work func(context.Context) error) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limit := ratelimit.OneAtATime(locks, "export", ratelimit.WithRetryAfter(func(time.Duration) time.Duration { return 1500 * time.Millisecond }))
	server := grpc.NewServer(grpc.UnaryInterceptor(grpcmw.UnaryServerInterceptor(limit, grpcmw.FromContext(func(ctx context.Context) (string, bool) {
		token := metadata.ValueFromIncomingContext(ctx, "authorization")
		return strings.Join(token, ""), len(token) > 0
	}))))
	exportpb.RegisterExportServiceServer(server, service{work: work})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

const path = "/exports"

// Each status that says when to try again has a Retry-After in HTTP. The others
// have none, nor has any with the gateway's own error handler.
func TestRetryAfter(t *testing.T) {
	end := func(cause error) func(context.Context) error {
		return func(ctx context.Context) error {
			lock, _ := sqllock.FromContext(ctx)
			lock.Cancel(cause) // as a lost connection or WithMaxHold does
			<-ctx.Done()
			return ctx.Err()
		}
	}
	returns := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	for name, tt := range map[string]struct {
		locks  sqllock.Locker
		token  string
		work   func(context.Context) error
		own    bool // the gateway's own error handler
		status int
		want   []string // in Retry-After
	}{
		"busy":                {httptesting.Failing{Err: sqllock.ErrHeld}, "ada", nil, false, http.StatusTooManyRequests, []string{"2"}},
		"away":                {httptesting.Failing{Err: sqllock.ErrUnavailable}, "ada", nil, false, http.StatusServiceUnavailable, []string{"1", "2", "3"}},
		"lock lost":           {sqllock.NewMemory(), "ada", end(sqllock.ErrLost), false, http.StatusConflict, []string{"1", "2", "3"}},
		"too long":            {sqllock.NewMemory(), "ada", end(ratelimit.ErrMaxHold), false, http.StatusGatewayTimeout, nil},
		"bad key":             {sqllock.NewMemory(), strings.Repeat("a", 5000), nil, false, http.StatusBadRequest, nil},
		"the handler's own":   {sqllock.NewMemory(), "ada", returns(status.Error(codes.NotFound, "none")), false, http.StatusNotFound, nil},
		"served":              {sqllock.NewMemory(), "ada", returns(nil), false, http.StatusOK, nil},
		"without these lines": {httptesting.Failing{Err: sqllock.ErrHeld}, "ada", nil, true, http.StatusTooManyRequests, nil},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := grpc.NewClient(newService(t, tt.locks, tt.work), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			handler := runtime.ErrorHandlerFunc(retryAfter)
			if tt.own {
				handler = runtime.DefaultHTTPErrorHandler
			}
			gateway, err := newGateway(exportpb.NewExportServiceClient(conn), handler)
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
			r.Header.Set("Authorization", tt.token)
			w := httptest.NewRecorder()
			gateway.ServeHTTP(w, r)
			if got := w.Header().Get("Retry-After"); w.Code != tt.status || !strings.Contains(strings.Join(tt.want, " "), got) || (got == "") != (tt.want == nil) {
				t.Errorf("status %d, Retry-After %q, want %d and %v", w.Code, got, tt.status, tt.want)
			}
			var body struct{ Message string }
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || tt.want != nil && !strings.Contains(body.Message, "Try again in") {
				t.Errorf("%v, message %q does not say when to try again", err, body.Message)
			}
		})
	}
}
