package demo

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// role is the role of an instance's process.
const role = "instance"

// An Instance is the configuration of an instance of the service, and how it
// reports to the demonstration.
type Instance struct {
	Number      int
	Driver, DSN string // for sql.Open
	ExportTakes time.Duration

	mu sync.Mutex // keeps lines of standard output whole
}

// An event is a line of JSON on an instance's standard output. The first says
// where the instance serves. Each other says that an export has ended, and when.
type event struct {
	HTTP string `json:"http,omitempty"`
	GRPC string `json:"grpc,omitempty"`

	User  string    `json:"user,omitempty"`
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
}

// Serving reports where the instance serves.
func (i *Instance) Serving(httpAddress, grpcAddress string) {
	i.report(event{HTTP: httpAddress, GRPC: grpcAddress})
}

// Exported reports an export.
func (i *Instance) Exported(user string, began, ended time.Time) {
	i.report(event{User: user, Began: began, Ended: ended})
}

func (i *Instance) report(e event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(e) // if the parent has ended, this process ends too
}

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 15 * time.Second
)

// An instance is a process of the service, as its parent sees it.
type instance struct {
	*subprocess.Process

	number     int
	http, grpc string // addresses
	exports    []export
	read       chan struct{} // closed when the instance has ended, and exports is complete
}

// An export is one that an instance has reported.
type export struct {
	instance     int
	user         string
	began, ended time.Time
}

// startInstance starts an instance, and waits until it serves.
func startInstance(ctx context.Context, o *Instance) (*instance, error) {
	p, err := subprocess.Start(role, o)
	if err != nil {
		return nil, err
	}
	i := &instance{Process: p, number: o.Number, read: make(chan struct{})}
	serves := make(chan event, 1)
	go i.follow(serves)
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case e := <-serves:
		i.http, i.grpc = e.HTTP, e.GRPC
		return i, nil
	case <-i.Ended():
		err = errors.New("it did not start")
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = errors.New("it does not respond")
	}
	return nil, errors.Join(err, i.Stop(stopTimeout))
}

// follow reads what the instance reports until it ends.
func (i *instance) follow(serves chan<- event) {
	defer close(i.read)
	for lines := json.NewDecoder(i.Stdout); ; {
		var e event
		if lines.Decode(&e) != nil {
			return
		}
		if e.HTTP != "" {
			serves <- e
			continue
		}
		i.exports = append(i.exports, export{i.number, e.User, e.Began, e.Ended})
	}
}
