package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/examples/quickstart/exportpb"
)

// An exporter does the slow work, over HTTP and gRPC. It knows nothing of locks,
// but that its context ends when it must stop.
type exporter struct {
	exportpb.UnimplementedExportServiceServer
	instance int
	takes    time.Duration
	events   *events
}

// export takes its time, and stops when ctx ends: the client has gone, or the
// lock is lost and another instance may begin (sqllock.ErrLost is its cause).
func (e *exporter) export(ctx context.Context, user string) error {
	begin := time.Now()
	defer func() { e.events.exported(user, begin, time.Now()) }()
	timer := time.NewTimer(e.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *exporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, _ := userFrom(r.Context())
	if err := e.export(r.Context(), user); err != nil {
		http.Error(w, "the export was stopped: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"user": user, "instance": e.instance}) // the client may have gone
}

// Export is ServeHTTP for gRPC.
func (e *exporter) Export(ctx context.Context, _ *exportpb.ExportRequest) (*exportpb.ExportResponse, error) {
	user, _ := userFrom(ctx)
	if err := e.export(ctx, user); err != nil {
		return nil, status.Error(codes.Unavailable, "the export was stopped: "+err.Error())
	}
	return &exportpb.ExportResponse{User: user, Instance: int32(e.instance)}, nil
}
