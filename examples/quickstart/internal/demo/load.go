package demo

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/examples/quickstart/exportpb"
)

var users = []string{"alice", "bob", "carol", "dave"}

// A client requests an export from one instance, over HTTP or gRPC. It reports
// whether the request was admitted.
type client func(ctx context.Context, user string) (admitted bool, err error)

// A tally counts how often each instance has admitted and rejected each user.
type tally struct {
	mu     sync.Mutex // protects what follows
	counts map[tallyKey]count
	failed error // the first response that is neither
}

type tallyKey struct {
	user     string
	instance int
}

type count struct{ admitted, rejected int }

// add counts a response, and reports whether to go on: none has failed yet.
func (t *tally) add(user string, instance int, admitted bool, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts[tallyKey{user, instance}]
	switch {
	case err != nil:
		t.failed = cmp.Or(t.failed, fmt.Errorf("instance %d: %w", instance, err))
	case admitted:
		c.admitted++
	default:
		c.rejected++
	}
	t.counts[tallyKey{user, instance}] = c
	return t.failed == nil
}

// sendLoad sends requests of each user to every instance for a while, over HTTP and
// gRPC at once.
func sendLoad(ctx context.Context, instances []*instance, forHowLong time.Duration) (*tally, error) {
	t := &tally{counts: map[tallyKey]count{}}
	var all sync.WaitGroup
	stop := time.Now().Add(forHowLong)
	for _, p := range instances {
		overHTTP, overGRPC, closeBoth, err := clientsOf(p)
		if err != nil {
			return nil, err
		}
		defer closeBoth()
		for _, user := range users {
			for _, ask := range []client{overHTTP, overGRPC} {
				all.Go(func() {
					for ctx.Err() == nil {
						admitted, err := ask(ctx, user)
						if !t.add(user, p.number, admitted, err) || time.Now().After(stop) {
							return
						}
						pause(ctx, 20*time.Millisecond+rand.N(60*time.Millisecond)) // a client that ignores Retry-After
					}
				})
			}
		}
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return t, t.failed
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// clientsOf returns the two clients of an instance.
func clientsOf(p *instance) (overHTTP, overGRPC client, closeBoth func(), err error) {
	conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, nil, err
	}
	transport := &http.Transport{}
	return httpClient(&http.Client{Transport: transport}, p.http),
		grpcClient(exportpb.NewExportServiceClient(conn)),
		func() { transport.CloseIdleConnections(); _ = conn.Close() },
		nil
}

func httpClient(c *http.Client, address string) client {
	return func(ctx context.Context, user string) (bool, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/exports", http.NoBody)
		if err != nil {
			return false, err
		}
		r.Header.Set("Authorization", "Bearer "+user+"-token")
		response, err := c.Do(r)
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		switch {
		case err != nil:
			return false, err
		case response.StatusCode == http.StatusOK:
			return true, nil
		case response.StatusCode == http.StatusTooManyRequests:
			return false, nil
		}
		return false, fmt.Errorf("%s: %s", response.Status, body)
	}
}

func grpcClient(c exportpb.ExportServiceClient) client {
	return func(ctx context.Context, user string) (bool, error) {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+user+"-token")
		_, err := c.Export(ctx, &exportpb.ExportRequest{})
		if status.Code(err) == codes.ResourceExhausted {
			return false, nil
		}
		return err == nil, err
	}
}
