package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
// The stream lasts until ctx ends or the gateway breaks it.
func (c *client) open(ctx context.Context, gateway, key string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, gateway+"/v1/stream", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	resp, err := c.http.Do(r)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		_, err := io.Copy(io.Discard, resp.Body) // the connection serves the next request
		err = errors.Join(err, resp.Body.Close())
		if resp.StatusCode == http.StatusTooManyRequests {
			return errors.Join(errRejected, err)
		}
		return errors.Join(fmt.Errorf("a stream was answered with %s", resp.Status), err)
	}
	tokens := bufio.NewReader(resp.Body)
	if _, err := tokens.ReadString('\n'); err != nil {
		return errors.Join(err, resp.Body.Close())
	}
	go func() {
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, tokens)
	}()
	return nil
}

// insist opens a stream, and asks again while it is rejected, until until is
// closed.
func (c *client) insist(ctx context.Context, until <-chan struct{}, gateway, key string) error {
	for {
		err := c.open(ctx, gateway, key)
		if !errors.Is(err, errRejected) {
			return err
		}
		select {
		case <-time.After(retryEvery/2 + rand.N(retryEvery)):
		case <-until:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
