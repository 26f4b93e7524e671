package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/examples/quickstart/exportpb"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/subprocess/programtest"
)

// A serving is the program with -serve. An export takes an hour: a test ends it.
type serving struct {
	command *exec.Cmd
	stderr  bytes.Buffer
	http    []string // of the instances: http://address
	grpc    []string // of the instances: addresses
	printed string   // all that it prints to try
	ended   chan error
}

var (
	curl    = regexp.MustCompile(`(?m)^ *curl .* (http://\S+)/exports$`)
	grpcurl = regexp.MustCompile(`(?m)^ *grpcurl .* (\S+) latchkey\.quickstart\.v1\.ExportService/Export$`)
)

// startServing starts the program with -serve and reads what to try from it.
func startServing(t *testing.T, databaseURL string) *serving {
	t.Helper()
	s := &serving{command: programtest.Command(t, "-serve", "-export", "1h"), ended: make(chan error, 1)}
	s.command.Env = append(s.command.Env, "DATABASE_URL="+databaseURL)
	// The instances inherit this pipe, so Wait waits for the end of each.
	s.command.Stderr = &s.stderr
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.command.Process.Kill() })
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.Contains(lines.Text(), "Ctrl-C") {
		s.printed += lines.Text() + "\n"
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdout)
		s.ended <- s.command.Wait()
	}()
	for _, found := range curl.FindAllStringSubmatch(s.printed, -1) {
		s.http = append(s.http, found[1])
	}
	for _, found := range grpcurl.FindAllStringSubmatch(s.printed, -1) {
		s.grpc = append(s.grpc, found[1])
	}
	if len(s.http) != 2 || len(s.grpc) != 2 || strings.Count(s.printed, "/locks/\n") != 2 {
		t.Fatalf("want two addresses of each kind to try, in\n%s", s.printed)
	}
	return s
}

// end sends a signal, and waits for the end of the program and its instances.
func (s *serving) end(t *testing.T, signal os.Signal) error {
	t.Helper()
	if err := s.command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-s.ended:
		return err
	case <-time.After(time.Minute): // only a hang takes as long
		t.Fatal("the program or an instance does not end")
		return nil
	}
}

// serves runs the program with -serve until a signal. While alice has an
// export, each instance rejects hers, and admits nobody without a token.
func serves(t *testing.T, databaseURL string, signal os.Signal) {
	s := startServing(t, databaseURL)
	if !strings.Contains(s.printed, "An export takes 1h0m0s.") {
		t.Errorf("it does not say how long an export takes:\n%s", s.printed)
	}
	file := regexp.MustCompile(`latchkey ps --db sqlite:(\S+)\n`).FindStringSubmatch(s.printed)
	if throwaway := databaseURL == ""; throwaway != (file != nil) {
		t.Errorf("it names the file %q of the locks:\n%s", file, s.printed)
	} else if throwaway {
		if _, err := os.Stat(file[1]); err != nil {
			t.Error(err)
		}
	}
	client := newClient(t)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		call(ctx, newClient(t), http.MethodPost, s.http[0]+"/exports", "alice-token")
	}()
	active := func() bool {
		_, metrics := call(t.Context(), client, http.MethodGet, s.http[0]+"/metrics", "")
		return strings.Contains(metrics, `latchkey_limiter_active_leases{limiter="`+namespace+`"} 1`)
	}
	lockertest.Eventually(t, "alice has an export", active)
	for i := range s.http {
		for token, want := range map[string]int{"alice-token": http.StatusTooManyRequests, "": http.StatusUnauthorized} {
			if got, _ := call(t.Context(), client, http.MethodPost, s.http[i]+"/exports", token); got != want {
				t.Errorf("instance %d, token %q: %d, want %d", i+1, token, got, want)
			}
		}
		conn := dialInstance(t, s.grpc[i])
		for token, want := range map[string]codes.Code{"alice-token": codes.ResourceExhausted, "": codes.Unauthenticated} {
			if got := callExport(t, conn, token); got != want {
				t.Errorf("instance %d, token %q: %v, want %v", i+1, token, got, want)
			}
		}
		if !reflects(t, conn) {
			t.Error("grpcurl would not find the service")
		}
	}
	leave()
	<-left
	lockertest.Eventually(t, "alice's export has ended with her request", func() bool { return !active() })

	viewer, err := client.Get(s.http[0] + "/locks/events")
	if err != nil {
		t.Fatal(err)
	}
	defer viewer.Body.Close()
	if err := s.end(t, signal); err != nil || s.stderr.Len() > 0 {
		t.Errorf("it ends with %v\n%s", err, &s.stderr)
	}
	if _, err := io.Copy(io.Discard, viewer.Body); err != nil {
		t.Errorf("the page was cut off, not ended: %v", err)
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	serves(t, "", syscall.SIGTERM)
}

func TestLongServe(t *testing.T) {
	eachPlace(t, places, func(t *testing.T, _ place, databaseURL string) { serves(t, databaseURL, os.Interrupt) })
}

// However the program dies, its instances do not outlive it.
func TestLongParentKilled(t *testing.T) {
	servers := places[2:] // in a file of SQLite the row of a killed session stays for the lease
	eachPlace(t, servers, func(t *testing.T, _ place, databaseURL string) {
		if startServing(t, databaseURL).end(t, os.Kill) == nil {
			t.Error("a killed process has ended well")
		}
	})
}

// newClient returns a client with connections of its own. If two requests at
// once shared them, a connection could stay unused, and the instance would wait
// for it when it ends.
func newClient(t *testing.T) *http.Client {
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// call returns the status of the response and its body, or 0.
func call(ctx context.Context, client *http.Client, method, url, token string) (status int, body string) {
	r, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return 0, ""
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
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

func callExport(t *testing.T, conn *grpc.ClientConn, token string) codes.Code {
	t.Helper()
	ctx := t.Context()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	_, err := exportpb.NewExportServiceClient(conn).Export(ctx, &exportpb.ExportRequest{})
	return status.Code(err)
}

// reflects reports whether the server tells clients of the export service.
func reflects(t *testing.T, conn *grpc.ClientConn) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
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
