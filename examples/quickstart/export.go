package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/latchkey-go/latchkey/examples/quickstart/exportpb"
	"github.com/latchkey-go/latchkey/examples/quickstart/internal/demo"
)

// An exporter does the slow work, over HTTP and gRPC. It uses no locks. It only
// stops when its context ends.
type exporter struct {
	exportpb.UnimplementedExportServiceServer
	*demo.Instance
}

// export takes a while. It stops when ctx ends: the client has gone, or the lock
// is lost and another instance may begin. Its error is then the cause of ctx. A
// lost lock's cause is sqllock.ErrLost.
func (e *exporter) export(ctx context.Context, user string) error {
	began := time.Now()
	defer func() { e.Exported(user, began, time.Now()) }() // so that the demonstration can check
	timer := time.NewTimer(e.ExportTakes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ServeHTTP exports. A failure has a response of its own: a handler that
// returns without a response sends 200. Only after the end of the context does
// the middleware respond instead, with 503 and Retry-After.
func (e *exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, _ := userFrom(r.Context())
	switch err := e.export(r.Context(), user); {
	case err != nil && r.Context().Err() != nil:
		return // interrupted: the client has gone, or the lock is lost
	case err != nil:
		http.Error(w, "The export failed.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"user": user, "instance": e.Number}) // the client may have gone
}

// Export exports, over gRPC. If it returns the cause of its context and its
// lock was lost, the client gets ABORTED and RetryInfo from the interceptor.
func (e *exporter) Export(ctx context.Context, _ *exportpb.ExportRequest) (*exportpb.ExportResponse, error) {
	user, _ := userFrom(ctx)
	if err := e.export(ctx, user); err != nil {
		return nil, err
	}
	return &exportpb.ExportResponse{User: user, Instance: int32(e.Number)}, nil
}
