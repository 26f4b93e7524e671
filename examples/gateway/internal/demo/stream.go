package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// retryEvery is how long a rejected client waits before it asks again. It ignores
// Retry-After, which is at least a second: the demonstration wants to know how
// soon a place is free.
const retryEvery = 50 * time.Millisecond

// errRejected is the error of a request that the gateway has rejected with 429.
var errRejected = errors.New("rejected with 429")

// A client is all clients of the gateways, each with connections of its own.
type client struct{ http *http.Client }

func newClient(streams int) *client {
	return &client{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}}
}

// open opens a stream with an API key, and returns when its first token is there.
// The stream lasts until ctx ends. ended is closed when it has broken.
func (c *client) open(ctx context.Context, gateway, key string) (ended <-chan struct{}, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, gateway+"/v1/stream", nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests {
			_, _ = bufio.NewReader(resp.Body).WriteTo(discard{}) // the connection serves the next request
			return nil, errRejected
		}
		return nil, fmt.Errorf("a stream was answered with %s", resp.Status)
	}
	tokens := bufio.NewReader(resp.Body)
	if _, err := tokens.ReadString('\n'); err != nil {
		return nil, errors.Join(err, resp.Body.Close())
	}
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		defer resp.Body.Close()
		_, _ = tokens.WriteTo(discard{})
	}()
	return broken, nil
}

// insist opens a stream, and asks again while it is rejected.
func (c *client) insist(ctx context.Context, until <-chan struct{}, gateway, key string) (ended <-chan struct{}, err error) {
	for {
		ended, err := c.open(ctx, gateway, key)
		if !errors.Is(err, errRejected) {
			return ended, err
		}
		select {
		case <-time.After(retryEvery/2 + rand.N(retryEvery)):
		case <-until:
			return nil, errRejected
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
