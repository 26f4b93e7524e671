package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/examples/quickstart/exportpb"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const patience = 30 * time.Second

// build builds the program as a reader's go run does.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "quickstart")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// environment is this process's with another DATABASE_URL.
func environment(dsn string) []string { return append(os.Environ(), "DATABASE_URL="+dsn) }

func TestDemo(t *testing.T) {
	tests := []struct {
		name string
		dsn  func(*testing.T) string
	}{
		{"database given", func(t *testing.T) string { return pgtest.Database(t) }},
		{"throwaway database", func(*testing.T) string { return "" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			command := exec.Command(build(t), "-load", "2s")
			command.Env = environment(tt.dsn(t))
			command.Stdout, command.Stderr = &stdout, &stderr
			if err := command.Run(); err != nil {
				t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
			}
			if stderr.Len() > 0 {
				t.Errorf("it complains:\n%s", &stderr)
			}
			for _, pattern := range []string{
				`(?m)^USER +INSTANCE +ADMITTED +REFUSED$`,
				`(?m)^alice +1 +\d+ +\d+$`,
				`(?m)^alice +2 +\d+ +\d+$`,
				`(?m)^dave +2 +\d+ +\d+$`,
				`(?m)^all +[1-9]\d* +[1-9]\d*$`,
				`saw 2 connections of latchkey`,
				` 0 overlapped another`,
			} {
				if !regexp.MustCompile(pattern).Match(stdout.Bytes()) {
					t.Errorf("no %s in\n%s", pattern, &stdout)
				}
			}
		})
	}
}

// A serving is the program with -serve.
type serving struct {
	command    *exec.Cmd
	stderr     bytes.Buffer
	http, grpc []string // of the instances: URLs and addresses
	ended      chan error
}

// startServing starts the program with -serve and reads what to try from it.
func startServing(t *testing.T, dsn string) *serving {
	t.Helper()
	s := &serving{command: exec.Command(build(t), "-serve", "-export", "2s"), ended: make(chan error, 1)}
	s.command.Env = environment(dsn)
	s.command.Stderr = &s.stderr // which the instances inherit: Wait waits for their end, too
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.command.Process.Kill() })
	curl := regexp.MustCompile(`^ *curl .* (http://\S+)$`)
	grpcurl := regexp.MustCompile(`^ *grpcurl .* (\S+) latchkey\.quickstart\.v1\.ExportService/Export$`)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.Contains(lines.Text(), "Ctrl-C") {
		if found := curl.FindStringSubmatch(lines.Text()); found != nil {
			s.http = append(s.http, found[1])
		}
		if found := grpcurl.FindStringSubmatch(lines.Text()); found != nil {
			s.grpc = append(s.grpc, found[1])
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdout)
		s.ended <- s.command.Wait()
	}()
	if len(s.http) != 2 || len(s.grpc) != 2 {
		t.Fatalf("it prints %v and %v to try, want two of each", s.http, s.grpc)
	}
	return s
}

// wait waits for the end of the program and its instances, and checks that
// nothing is left of them.
func (s *serving) wait(t *testing.T, dsn string) error {
	t.Helper()
	var err error
	select {
	case err = <-s.ended:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	for _, url := range s.http {
		address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/exports")
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			t.Errorf("something still listens where an instance did")
		}
	}
	db, openErr := sql.Open("pgx", dsn)
	if openErr != nil {
		t.Fatal(openErr)
	}
	defer db.Close()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		n, err := (&database{db: db}).connections()
		if err == nil && n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are left, %v", n, err)
		}
	}
	return err
}

func TestServe(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			s := startServing(t, dsn)
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			post := func(instance int, token string) int {
				r, err := http.NewRequest(http.MethodPost, s.http[instance], http.NoBody)
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
			if got := post(0, ""); got != http.StatusUnauthorized {
				t.Errorf("without a token: %d", got)
			}
			// Alice asks both instances at once, over HTTP and gRPC.
			answers := make(chan string, 3)
			go func() { answers <- http.StatusText(post(0, "alice-token")) }()
			go func() { answers <- http.StatusText(post(1, "alice-token")) }()
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

			if err := s.command.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := s.wait(t, dsn); err != nil || s.stderr.Len() > 0 {
				t.Errorf("it ends with %v\n%s", err, &s.stderr)
			}
		})
	}
}

// However the parent dies, the instances do not outlive it.
func TestParentKilled(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := startServing(t, dsn)
	if err := s.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.wait(t, dsn); err == nil {
		t.Error("a killed process has ended well")
	}
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
