package main

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/examples/gateway/internal/demo"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

const streams = 40

// Every place of an instance that is killed becomes free, through another one.
// This is also the short run of the whole demonstration.
func TestKill(t *testing.T) {
	t.Parallel()
	r, err := demo.Kill(t.Context(), demo.Trial{DatabaseURL: pgtest.Database(t), Streams: streams, Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if r.Broken != streams/2 || r.Leaked() != 0 {
		t.Errorf("%d of %d places are not free again", r.Leaked(), r.Broken)
	}
}

// Counters in Redis leak: the comparison of the README. When all streams have
// ended, they still have what the killed instance has counted.
func TestLongKillWithCounters(t *testing.T) {
	t.Parallel()
	client, url := startRedis(t)
	if _, err := demo.Kill(t.Context(), demo.Trial{Redis: url, Streams: streams, Wait: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	counters, err := client.Keys(t.Context(), "inflight:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, name := range counters {
		n, err := client.Get(t.Context(), name).Int()
		if err != nil {
			t.Fatal(err)
		}
		left += n
	}
	if left != streams/2 {
		t.Errorf("without a stream in flight the counters have %d, want %d", left, streams/2)
	}
}

// startRedis starts a redis-server on a socket in the file system.
func startRedis(t *testing.T) (client *redis.Client, url string) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server not found: run `make deps`")
	}
	socket := filepath.Join(t.TempDir(), "redis")
	c := exec.CommandContext(t.Context(), program, "--port", "0", "--unixsocket", socket, "--save", "")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Wait() }) // it ends with the test's context
	client = redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	t.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for client.Ping(ctx).Err() != nil {
		if ctx.Err() != nil {
			t.Fatal(errors.New("redis-server does not answer"))
		}
	}
	return client, "unix://" + socket
}
