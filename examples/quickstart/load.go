package main

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

// A client asks one instance for exports, over HTTP or gRPC. It reports whether
// the export was admitted: done, not refused.
type client func(ctx context.Context, user string) (admitted bool, err error)

// A tally is how often each instance has admitted and refused each user.
type tally struct {
	mu     sync.Mutex // protects what follows
	counts map[tallyKey]count
	failed error // the first answer that is neither
}

type tallyKey struct {
	user     string
	instance int
}

type count struct{ admitted, refused int }

// add counts an answer, and reports whether to go on: none has failed yet.
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
		c.refused++
	}
	t.counts[tallyKey{user, instance}] = c
	return t.failed == nil
}

// sendLoad has each user ask every instance for exports for a while, over HTTP
// and gRPC at once, again and again.
func sendLoad(ctx context.Context, instances []*process, forHowLong time.Duration) (*tally, error) {
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
					for time.Now().Before(stop) && ctx.Err() == nil {
						admitted, err := ask(ctx, user)
						if !t.add(user, p.number, admitted, err) {
							return
						}
						pause(ctx, 20*time.Millisecond+rand.N(60*time.Millisecond)) // a rude client: Retry-After says a second
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

// clientsOf makes the two clients of an instance.
func clientsOf(p *process) (overHTTP, overGRPC client, closeBoth func(), err error) {
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
		r.Header.Set("Authorization", "Bearer "+tokenOf(user))
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
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+tokenOf(user))
		_, err := c.Export(ctx, &exportpb.ExportRequest{})
		if status.Code(err) == codes.ResourceExhausted {
			return false, nil
		}
		return err == nil, err
	}
}
