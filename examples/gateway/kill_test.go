package main

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/subprocess/programtest"
)

// kill runs the program, which kills a gateway with half of 40 streams. It
// checks a line of the table.
func kill(t *testing.T, line string, args ...string) {
	t.Helper()
	c := programtest.Command(t, append(args, "-streams", "40")...)
	c.Env = append(c.Env, "DATABASE_URL="+pgtest.Database(t))
	out := programtest.Output(t, c)
	if !regexp.MustCompile("(?m)^" + line + "$").MatchString(out) {
		t.Errorf("no line %q in\n%s", line, out)
	}
}

// Every place of an instance that is killed becomes free, through another one.
func TestKill(t *testing.T) {
	t.Parallel()
	kill(t, `locks in PostgreSQL +20 +[\d.]+m?s +20 +\S+s +\S+s +\S+s +0`, "-wait", "1m")
}

// Counters in Redis leak: the comparison of the README.
func TestLongKillWithCounters(t *testing.T) {
	t.Parallel()
	kill(t, `counters in Redis +20 +- +0 +never +never +never +20`, "-wait", "20s", "-redis", startRedis(t))
}

// startRedis starts a redis-server on a socket in the file system.
func startRedis(t *testing.T) (url string) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("missing: redis-server")
	}
	socket := filepath.Join(t.TempDir(), "redis")
	c := exec.CommandContext(t.Context(), program, "--port", "0", "--unixsocket", socket, "--save", "")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Wait() }) // it ends with the test's context
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for client.Ping(ctx).Err() != nil {
		if ctx.Err() != nil {
			t.Fatal(errors.New("redis-server does not answer"))
		}
	}
	return "unix://" + socket
}
