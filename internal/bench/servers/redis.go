package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// ErrNoRedis says that redis-server was not found, and what to do.
var ErrNoRedis error = &pgtest.MissingError{Program: "redis-server", Advice: "run `make deps`"}

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 5 * time.Second
)

// A Redis is a running redis-server without any file of its own, on loopback.
type Redis struct {
	Addr    string
	Version string

	process *os.Process
	ended   chan struct{} // closed when it has
}

// redisPlaces is where packages put redis-server, PATH aside; deps.sh looks
// there too.
var redisPlaces = []string{"/usr/bin", "/opt/homebrew/bin", "/usr/local/bin"}

func findRedis() (string, error) {
	if path, err := exec.LookPath("redis-server"); err == nil {
		return path, nil
	}
	for _, dir := range redisPlaces {
		if path, err := exec.LookPath(dir + "/redis-server"); err == nil {
			return path, nil
		}
	}
	return "", ErrNoRedis
}

// StartRedis starts a redis-server. On Linux the kernel kills it when this
// process ends in whichever way.
func StartRedis(ctx context.Context) (*Redis, error) {
	program, err := findRedis()
	if err != nil {
		return nil, err
	}
	port, release, err := reservePort()
	if err != nil {
		return nil, err
	}
	defer release() // the server has it then
	var said bytes.Buffer
	command := exec.Command(program, "-") //nolint:gosec,noctx // it runs until Close
	command.Dir = "/"
	command.Stdin = strings.NewReader(fmt.Sprintf("bind 127.0.0.1\nport %d\nsave \"\"\nappendonly no\n", port))
	command.Stdout, command.Stderr = &said, &said
	command.SysProcAttr = &syscall.SysProcAttr{}
	dieWithParent(command.SysProcAttr)
	if err := command.Start(); err != nil {
		return nil, err
	}
	r := &Redis{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), process: command.Process, ended: make(chan struct{})}
	go func() {
		_ = command.Wait() // how it ended does not matter
		close(r.ended)
	}()
	if r.Version, err = r.version(ctx); err != nil {
		err = errors.Join(err, r.Close())
		return nil, fmt.Errorf("servers: redis-server did not start: %w; it said:\n%s", err, said.String())
	}
	return r, nil
}

// version waits until the process itself answers, not a stranger on its port.
func (r *Redis) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: r.Addr})
	defer client.Close()
	for {
		info, err := client.InfoMap(ctx, "server").Result()
		if err == nil && info["Server"]["process_id"] == strconv.Itoa(r.process.Pid) {
			return info["Server"]["redis_version"], nil
		}
		select {
		case <-r.ended:
			return "", errors.New("it ended at once")
		case <-ctx.Done():
			return "", errors.Join(ctx.Err(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Close stops the server; a second call does nothing.
func (r *Redis) Close() error {
	_ = r.process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-r.ended:
		return nil
	case <-time.After(stopTimeout):
	}
	err := r.process.Kill()
	<-r.ended
	return err
}
