package main

import (
	"context"
	"io"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/examples/quickstart/exportpb"
)

// askAll asks both instances for exports, as it is and as it should not be.
func askAll(t *testing.T, s *serving) {
	t.Helper()
	if got := callHTTP(t, s.http[0], ""); got != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got)
	}
	// Alice asks both instances at once, over HTTP and gRPC.
	answers := make(chan string, 3)
	go func() { answers <- http.StatusText(callHTTP(t, s.http[0], "alice-token")) }()
	go func() { answers <- http.StatusText(callHTTP(t, s.http[1], "alice-token")) }()
	go func() { answers <- callExport(t, s.grpc[1], "alice-token").String() }()
	admitted := 0
	for range cap(answers) {
		switch answer := <-answers; answer {
		case "OK":
			admitted++
		case "Too Many Requests", "ResourceExhausted":
		default:
			t.Errorf("answer %q", answer)
		}
	}
	if admitted != 1 {
		t.Errorf("%d of three at once were admitted, want one", admitted)
	}
	if got := callExport(t, s.grpc[1], "bob-token"); got != codes.OK {
		t.Errorf("afterwards, over gRPC: %v", got)
	}
	if got := callExport(t, s.grpc[0], ""); got != codes.Unauthenticated {
		t.Errorf("without a token, over gRPC: %v", got)
	}
	if !reflects(t, s.grpc[0]) {
		t.Error("grpcurl would not find the service")
	}
}

// callHTTP returns the status of the response, or 0.
func callHTTP(t *testing.T, url, token string) int {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequest(http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Error(err)
		return 0
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func dialInstance(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func callExport(t *testing.T, address, token string) codes.Code {
	t.Helper()
	ctx := t.Context()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	_, err := exportpb.NewExportServiceClient(dialInstance(t, address)).Export(ctx, &exportpb.ExportRequest{})
	return status.Code(err)
}

// reflects reports whether the server tells clients of the export service.
func reflects(t *testing.T, address string) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := grpc_reflection_v1.NewServerReflectionClient(dialInstance(t, address)).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	symbol := exportpb.ExportService_ServiceDesc.ServiceName
	err = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol},
	})
	if err != nil {
		t.Fatal(err)
	}
	response, err := stream.Recv()
	return err == nil && len(response.GetFileDescriptorResponse().GetFileDescriptorProto()) > 0
}
