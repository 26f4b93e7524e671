package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/latchkey-go/latchkey/examples/quickstart/exportpb"
)

// An exporter does the slow work, over HTTP and gRPC. It uses no locks. It only
// stops when its context ends.
type exporter struct {
	exportpb.UnimplementedExportServiceServer

	takes time.Duration
}

// A result says whose data was exported, and when.
type result struct {
	User  string    `json:"user"`
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
}

// export takes a while. It stops when ctx ends: the client has gone, or the lock
// is lost and another instance may begin. Its error is then the cause of ctx. A
// lost lock's cause is sqllock.ErrLost.
func (e *exporter) export(ctx context.Context) (result, error) {
	user, _ := userFrom(ctx)
	began := time.Now()
	select {
	case <-time.After(e.takes):
		return result{user, began, time.Now()}, nil
	case <-ctx.Done():
		return result{}, context.Cause(ctx)
	}
}

// ServeHTTP exports. A failure has a response of its own: a handler that
// returns without a response sends 200. Only after the end of the context does
// the middleware respond instead, with 503 and Retry-After.
func (e *exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	done, err := e.export(r.Context())
	switch {
	case err != nil && r.Context().Err() != nil:
		return // interrupted: the client has gone, or the lock is lost
	case err != nil:
		http.Error(w, "The export failed.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(done) // the client may have gone
}

// Export exports, over gRPC. If it returns the cause of its context and its
// lock was lost, the client gets ABORTED and RetryInfo from the interceptor.
func (e *exporter) Export(ctx context.Context, _ *exportpb.ExportRequest) (*exportpb.ExportResponse, error) {
	done, err := e.export(ctx)
	if err != nil {
		return nil, err
	}
	return &exportpb.ExportResponse{
		User: done.User, Began: timestamppb.New(done.Began), Ended: timestamppb.New(done.Ended),
	}, nil
}
