package demo

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// role is the role of an instance.
const role = "instance"

// timeout bounds the start and the end of an instance, and the wait for a leader.
const timeout = 15 * time.Second

var errSilent = errors.New("an instance does not respond")

// An instance is a process that campaigns.
type instance struct {
	*subprocess.Process

	number int
	read   chan struct{} // closed when the instance has ended and all its work is in the history

	address string // of its health
}

// A fleet is the instances that run.
//
// Invariant: no instance outlives the fleet's stop.
type fleet struct {
	url       string
	history   history
	instances []*instance
	started   int
}

const fleetSize = 3

// withFleet starts a fleet, calls do and stops the fleet.
func withFleet(ctx context.Context, url string, do func(*fleet) error) (err error) {
	f := &fleet{url: url}
	defer func() { err = errors.Join(err, f.stop()) }()
	for range fleetSize {
		if err := f.start(ctx); err != nil {
			return err
		}
	}
	return do(f)
}

// start starts one more instance and waits until it serves.
func (f *fleet) start(ctx context.Context) error {
	p, err := subprocess.Start(role, f.url)
	if err != nil {
		return err
	}
	f.started++
	i := &instance{Process: p, number: f.started, read: make(chan struct{})}
	serves := make(chan string, 1)
	go i.follow(&f.history, serves)
	select {
	case i.address = <-serves:
		f.instances = append(f.instances, i)
		return nil
	case <-i.Ended():
		err = errors.New("an instance did not start")
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(timeout):
		err = errSilent
	}
	return errors.Join(err, i.Kill())
}

// follow reads the log of i until i ends.
func (i *instance) follow(h *history, serves chan<- string) {
	defer close(i.read)
	for lines := json.NewDecoder(i.Stdout); ; {
		var line struct {
			Message string `json:"msg"`
			Address string `json:"address"`
			work
		}
		if lines.Decode(&line) != nil {
			return
		}
		switch line.Message {
		case "serving":
			serves <- line.Address
		case "worked":
			h.add(i.number, line.work)
		}
	}
}

// health asks i whether it leads.
func (i *instance) health(ctx context.Context) (leads bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+i.address+"/health", http.NoBody)
	if err != nil {
		return false, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return false, errSilent // the error's text names an address
	}
	defer response.Body.Close()
	var status struct{ Leader bool }
	err = json.NewDecoder(response.Body).Decode(&status)
	return status.Leader, err
}

// stop stops all instances. Called again it does nothing.
func (f *fleet) stop() (err error) {
	for _, i := range f.instances { // all at once
		_ = i.Thaw() // a frozen instance does not notice that it is asked to end
		i.Ask()
	}
	for _, i := range f.instances {
		if stopErr := i.Stop(timeout); errors.Is(stopErr, subprocess.ErrKilled) {
			err = errors.Join(err, stopErr)
		}
		<-i.read
	}
	f.instances = nil
	return err
}

// remove waits until i has ended, and forgets it.
func (f *fleet) remove(i *instance) {
	<-i.read
	f.instances = slices.DeleteFunc(f.instances, func(other *instance) bool { return other == i })
}

func (f *fleet) instance(number int) *instance {
	return f.instances[slices.IndexFunc(f.instances, func(i *instance) bool { return i.number == number })]
}

// awaitLeader waits until an instance has led after a moment. The instance with
// the number not does not count.
func (f *fleet) awaitLeader(ctx context.Context, moment time.Time, not int) (*term, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("no instance leads"))
	defer cancel()
	for {
		if t := f.history.after(moment, not); t != nil {
			return t, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// leaders returns the instances that call themselves leader, and how many do not
// respond.
func (f *fleet) leaders(ctx context.Context) (numbers []int, silent int) {
	for _, i := range f.instances {
		switch leads, err := i.health(ctx); {
		case err != nil:
			silent++
		case leads:
			numbers = append(numbers, i.number)
		}
	}
	return numbers, silent
}
