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

// redisSettings are those that are not Redis's defaults: it keeps nothing on
// disk.
var redisSettings = map[string]string{"Redis save": `""`, "Redis appendonly": "no"}

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
	if err := r.awaitAnswer(ctx); err != nil {
		err = errors.Join(err, r.Close())
		return nil, fmt.Errorf("servers: redis-server did not start: %w; it said:\n%s", err, said.String())
	}
	return r, nil
}

// awaitAnswer waits until the process itself answers, not a stranger on its
// port.
func (r *Redis) awaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := net.Dial("tcp", r.Addr) //nolint:noctx // loopback
		if err == nil {
			return errors.Join(conn.Close(), r.recognise(ctx))
		}
		select {
		case <-r.ended:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (r *Redis) recognise(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: r.Addr})
	defer client.Close()
	info, err := client.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	server := info["Server"]
	if server["process_id"] != strconv.Itoa(r.process.Pid) {
		return errors.New("another server answers on its port")
	}
	r.Version = server["redis_version"]
	return nil
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
