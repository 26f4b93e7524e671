package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// The roles of a gateway's process.
const (
	role        = "gateway"
	counterRole = "counter gateway"
)

// A Gateway is the configuration of an instance, and how it reports to the
// demonstration.
type Gateway struct {
	DatabaseURL string
	Upstream    string // URL of the service behind the gateway
	Accounts    string // file with the accounts
	Redis       string // URL, of the gateway that counts in Redis
}

// Serving reports where the instance serves.
func (*Gateway) Serving(address string) { fmt.Println(address) }

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 40 * time.Second // more than the grace of the recipe
)

// A process is a gateway, as its parent sees it.
type process struct {
	*subprocess.Process

	url         string
	application string // the application_name of its connections
}

// startProcess starts a gateway, and waits until it serves. Its connections to
// PostgreSQL are called application.
func startProcess(ctx context.Context, role, application string, g *Gateway) (*process, error) {
	p, err := subprocess.Start(role, g, "PGAPPNAME="+application)
	if err != nil {
		return nil, err
	}
	line := make(chan string, 1)
	go func() {
		text, err := p.ReadLine()
		if err != nil {
			text = ""
		}
		line <- text
	}()
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case address := <-line:
		if address != "" {
			return &process{p, "http://" + address, application}, nil
		}
		err = errors.New("a gateway did not start")
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = errors.New("a gateway does not report where it serves")
	}
	return nil, errors.Join(err, p.Kill())
}
