package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/examples/internal/fleet"
	"github.com/latchkey-go/latchkey/examples/quickstart/exportpb"
)

var users = []string{"alice", "bob", "carol", "dave"}

// A sender is a user who asks an instance.
type sender struct {
	user     string
	instance int
}

// A load is what became of the requests.
type load struct {
	mu          sync.Mutex // protects all
	works       []fleet.Work
	rejected    map[sender]int
	connections int   // the most that both instances had at once
	failed      error // the first response that is neither
}

// An ask requests one export. It returns nil if that was rejected.
type ask func(ctx context.Context, user string) (*fleet.Work, error)

// sendLoad sends requests of each user to every instance for a while, over HTTP and
// gRPC at once.
func sendLoad(ctx context.Context, instances []*fleet.Instance, length time.Duration) (*load, error) {
	l := &load{rejected: map[sender]int{}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	stop := time.Now().Add(length)
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * len(users)}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for _, i := range instances {
		conn, err := grpc.NewClient(i.Address("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		for _, user := range users {
			for _, ask := range []ask{overHTTP(client, i.Address("http")), overGRPC(exportpb.NewExportServiceClient(conn))} {
				all.Go(func() {
					for time.Now().Before(stop) && ctx.Err() == nil {
						l.note(sender{user, i.Number}, cancel)(ask(ctx, user))
						pause(ctx, 20*time.Millisecond+rand.N(60*time.Millisecond)) // a client that ignores Retry-After
					}
				})
			}
		}
	}
	all.Go(func() {
		for time.Now().Before(stop) && ctx.Err() == nil {
			l.count(ctx, client, instances)
			pause(ctx, 50*time.Millisecond)
		}
	})
	all.Wait()
	return l, cmp.Or(l.failed, context.Cause(ctx))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// note returns a function that notes a response to s. An error ends the load.
func (l *load) note(s sender, end func()) func(*fleet.Work, error) {
	return func(w *fleet.Work, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case err != nil:
			l.failed = cmp.Or(l.failed, fmt.Errorf("instance %d: %w", s.instance, err))
			end()
		case w == nil:
			l.rejected[s]++
		default:
			w.Instance = s.instance
			l.works = append(l.works, *w)
		}
	}
}

// count counts the connections of all instances, as they report them.
func (l *load) count(ctx context.Context, client *http.Client, instances []*fleet.Instance) {
	n := 0
	for _, i := range instances {
		var vars struct{ Session struct{ Connections int } }
		if _, err := fetch(ctx, client, http.MethodGet, "http://"+i.Address("http")+"/debug/vars", "", &vars); err == nil {
			n += vars.Session.Connections
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connections = max(l.connections, n)
}

// fetch sends a request and decodes the response, if it is 200.
func fetch(ctx context.Context, client *http.Client, method, url, token string, into any) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		err = json.NewDecoder(response.Body).Decode(into)
	}
	return response.StatusCode, err
}

func overHTTP(client *http.Client, address string) ask {
	return func(ctx context.Context, user string) (*fleet.Work, error) {
		var done struct{ Began, Ended time.Time }
		status, err := fetch(ctx, client, http.MethodPost, "http://"+address+"/exports", user+"-token", &done)
		switch {
		case err != nil:
			return nil, err
		case status == http.StatusTooManyRequests:
			return nil, nil
		case status != http.StatusOK:
			return nil, fmt.Errorf("the response is %d %s", status, http.StatusText(status))
		}
		return &fleet.Work{Key: user, From: done.Began, To: done.Ended}, nil
	}
}

func overGRPC(client exportpb.ExportServiceClient) ask {
	return func(ctx context.Context, user string) (*fleet.Work, error) {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+user+"-token")
		done, err := client.Export(ctx, &exportpb.ExportRequest{})
		switch {
		case status.Code(err) == codes.ResourceExhausted:
			return nil, nil
		case err != nil:
			return nil, err
		}
		return &fleet.Work{Key: user, From: done.GetBegan().AsTime(), To: done.GetEnded().AsTime()}, nil
	}
}
