// Grpcgateway shows latchkey behind grpc-gateway: a call that package grpcmw
// rejects becomes an HTTP response with Retry-After. `go run .` sends a request
// while another of the same user runs, and prints both responses.
//
// The recipe is retryafter.go, which adds the header, and service.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

func main() {
	if err := demonstrate(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// demonstrate has a user begin an export, and ask for another meanwhile. A service
// uses a sqllock.Session on its database in place of the Memory.
func demonstrate(ctx context.Context, out io.Writer) error {
	began, leave := make(chan struct{}, 1), make(chan struct{})
	work := func(ctx context.Context) error {
		began <- struct{}{}
		select {
		case <-leave:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	gateway, stop, err := serve(ctx, ratelimit.OneAtATime(sqllock.NewMemory(), "export"), work)
	if err != nil {
		return err
	}
	defer stop() //nolint:errcheck // the program ends
	web := httptest.NewServer(gateway)
	defer web.Close()

	first := make(chan string, 1)
	go func() { first <- export(ctx, web.URL, "ada") }()
	select {
	case <-began:
	case outcome := <-first:
		return errors.New("the first request did not run: " + outcome)
	}
	fmt.Fprintln(out, "second request, while the first runs:", export(ctx, web.URL, "ada"))
	close(leave)
	fmt.Fprintln(out, "first request:", <-first)
	return nil
}

// export asks the gateway for an export and describes the response.
func export(ctx context.Context, url, user string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/latchkey.grpcgateway.v1.ExportService/Export", http.NoBody)
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+user)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	return fmt.Sprintf("%s, Retry-After: %q", resp.Status, resp.Header.Get("Retry-After"))
}
