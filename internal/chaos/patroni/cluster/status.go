//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// ask sends a request to Patroni on n, for at most d. It fails unless the status
// is 200.
func (n *Node) ask(ctx context.Context, d time.Duration, method, path, body string) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://%s:%d%s", n.Host.IP, patroniPort, path), strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Close = true // the node may be cut off later
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("cluster: %s of %s: %s: %s", path, n.Host.Name, response.Status, text)
	}
	return err
}

// Whole waits until all nodes serve. A row that the leader commits can be read on
// each of them then. What servers report of their replication proves less. A
// standby with a history of its own may have the leader's timeline, and streams
// until it reads what it received.
//
// A standby that does not find its way back alone is made anew, as an operator
// does it: Patroni may overlook that it has to be rewound.
func (c *Cluster) Whole(ctx context.Context, d time.Duration) error {
	var last error
	patience := 25*time.Second + 5*LoopWait
	due := time.Now().Add(patience)
	err := fleet.Poll(ctx, d, "the cluster to be whole", func(ctx context.Context) (bool, error) {
		behind, err := c.replicates(ctx)
		if err == nil {
			return true, nil
		}
		if ctx.Err() == nil {
			last = err
		}
		if time.Now().After(due) {
			due = time.Now().Add(patience)
			for _, n := range behind { // an error shows by its not following later either
				if n.ask(ctx, time.Second, http.MethodPost, "/reinitialize", `{"force": true}`) == nil {
					c.Reinitialized++
				}
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("%w; last seen: %w", err, last)
	}
	return nil
}

// replicates commits a row on the leader and waits for it on all nodes. It
// returns the standbys that do not run, or that do not have the row.
func (c *Cluster) replicates(ctx context.Context) (behind []*Node, err error) {
	leader, err := c.leader(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range c.Nodes {
		if e := n.ask(ctx, time.Second, http.MethodGet, "/health", ""); e != nil {
			err = errors.Join(err, e)
			if n != leader {
				behind = append(behind, n)
			}
		}
	}
	if err != nil {
		return behind, err
	}
	row := rand.Int64() // a counter could have the same value in another history
	err = c.Exec(ctx, leader, "postgres", "CREATE TABLE IF NOT EXISTS replicated (row bigint)", fmt.Sprintf("INSERT INTO replicated VALUES (%d)", row))
	if err != nil {
		return nil, err
	}
	for _, n := range c.Nodes {
		e := fleet.Poll(ctx, time.Second, "a row on "+n.Host.Name, func(ctx context.Context) (bool, error) {
			there, _ := c.Holds(ctx, n, "postgres", fmt.Sprintf("SELECT count(*) = 1 FROM replicated WHERE row = %d", row))
			return there, nil
		})
		if err = errors.Join(err, e); e != nil && n != leader {
			behind = append(behind, n)
		}
	}
	return behind, err
}

// leader returns the node that is the primary by its Patroni, among those that
// are not excepted.
func (c *Cluster) leader(ctx context.Context, except ...*Node) (*Node, error) {
	for _, n := range c.Nodes {
		if !slices.Contains(except, n) && n.ask(ctx, time.Second, http.MethodOptions, "/primary", "") == nil {
			return n, nil
		}
	}
	return nil, errors.New("cluster: no node is the primary")
}

// Leader waits for a primary among the nodes that are not excepted.
func (c *Cluster) Leader(ctx context.Context, d time.Duration, except ...*Node) (leader *Node, err error) {
	err = fleet.Poll(ctx, d, "a primary", func(ctx context.Context) (bool, error) {
		n, err := c.leader(ctx, except...)
		leader = n
		return err == nil, nil
	})
	return leader, err
}

// Switchover asks Patroni to make to the primary in place of from.
func (c *Cluster) Switchover(ctx context.Context, from, to *Node) error {
	return from.ask(ctx, time.Minute, http.MethodPost, "/switchover", fmt.Sprintf(`{"leader": %q, "candidate": %q}`, from.Host.Name, to.Host.Name))
}
