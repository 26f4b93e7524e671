//go:build linux

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// client asks servers that may be cut off. It keeps no connections.
var client = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// call sends a request with a body of JSON, and decodes the answer into answer.
func call(ctx context.Context, method, url string, body, answer any) (status int, err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return 0, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if text, err = io.ReadAll(response.Body); err != nil {
		return response.StatusCode, err
	}
	if answer != nil {
		err = json.Unmarshal(text, answer)
	}
	return response.StatusCode, err
}

func (n *Node) patroniURL(path string) string {
	return fmt.Sprintf("http://%s:%d%s", n.Host.IP, patroniPort, path)
}

// A member is a node as Patroni sees it.
type member struct {
	Name     string `json:"name"`
	Role     string `json:"role"`
	State    string `json:"state"`
	Timeline int    `json:"timeline"`
	Lag      any    `json:"lag"` // bytes, or "unknown"
}

func (m member) lag() float64 {
	if n, ok := m.Lag.(float64); ok {
		return n
	}
	return -1
}

// leads reports whether m is a primary at work.
func (m member) leads() bool { return m.Role == "leader" && m.State == "running" }

// follows reports whether m is a standby that follows the leader closely.
func follows(m member, members []member) bool {
	running := m.State == "running" || m.State == "streaming"
	return (m.Role == "replica" || m.Role == "sync_standby") && running && m.lag() >= 0 && m.lag() < 1<<20 &&
		slices.ContainsFunc(members, func(l member) bool { return l.leads() && l.Timeline == m.Timeline })
}

// whole reports whether all n nodes run and follow one leader closely. In
// synchronous mode one of them must be a synchronous standby.
func whole(members []member, n int, synchronous bool) bool {
	standbys, synced := 0, false
	for _, m := range members {
		if follows(m, members) {
			standbys++
			synced = synced || m.Role == "sync_standby"
		}
	}
	return standbys == n-1 && len(members) == n && (synced || !synchronous)
}

// reinitializeAfter is how long a standby may take to follow the leader, before
// it is made anew.
func (c *Cluster) reinitializeAfter() time.Duration { return 25*time.Second + 5*c.LoopWait }

// Whole waits until all nodes serve: Patroni, PostgreSQL and etcd. A standby that
// does not find its way back alone is made anew, as an operator does it: Patroni
// may overlook that it has to be rewound.
func (c *Cluster) Whole(ctx context.Context, d time.Duration) error {
	var last string
	due := time.Now().Add(c.reinitializeAfter())
	err := poll(ctx, d, "the cluster to be whole", func(ctx context.Context) bool {
		for _, n := range c.Nodes {
			if s, err := n.etcdStatus(ctx); err != nil || s.Leader == "" || s.Leader == "0" {
				last = fmt.Sprintf("etcd of %s: %v", n.Host.Name, err)
				return false
			}
		}
		leader, err := c.leader(ctx)
		if err != nil {
			last = err.Error()
			return false
		}
		var cluster struct{ Members []member }
		if _, err := call(ctx, http.MethodGet, leader.patroniURL("/cluster"), nil, &cluster); err != nil {
			last = err.Error()
			return false
		}
		last = fmt.Sprintf("%+v", cluster.Members)
		behind := lagging(cluster.Members)
		if whole(cluster.Members, len(c.Nodes), c.Synchronous) {
			for _, n := range c.Nodes { // the table in etcd may be older than the node's end
				if status, err := call(ctx, http.MethodGet, n.patroniURL("/health"), nil, nil); err != nil || status != http.StatusOK {
					last = fmt.Sprintf("health of %s: %d, %v", n.Host.Name, status, err)
					return false
				}
			}
			late, err := c.replicates(ctx, leader)
			if err == nil {
				return true
			}
			last, behind = fmt.Sprintf("replication from %s: %v", leader.Host.Name, err), late
		}
		if time.Now().After(due) {
			due = time.Now().Add(c.reinitializeAfter())
			c.reinitialize(ctx, behind)
		}
		return false
	})
	if err != nil {
		return fmt.Errorf("%w; last seen: %s", err, last)
	}
	return nil
}

// lagging returns the names of the standbys that do not follow the leader closely.
func lagging(members []member) (names []string) {
	for _, m := range members {
		if m.Role != "leader" && !follows(m, members) {
			names = append(names, m.Name)
		}
	}
	return names
}

// replicates commits a row on leader and waits for it on all nodes. It returns the
// names of the standbys that do not have it. What servers report of their
// replication proves less. A standby with a history of its own may have the
// leader's timeline. It then streams until it reads what it received.
func (c *Cluster) replicates(ctx context.Context, leader *Node) (late []string, err error) {
	row := rand.Int64() // a counter could have the same value in another history
	err = c.query(ctx, leader, "CREATE TABLE IF NOT EXISTS replicated (row bigint)", nil)
	if err == nil {
		err = c.query(ctx, leader, fmt.Sprintf("INSERT INTO replicated VALUES (%d)", row), nil)
	}
	if err != nil {
		return nil, err
	}
	for _, n := range c.Nodes {
		e := poll(ctx, time.Second, "a row on "+n.Host.Name, func(ctx context.Context) bool {
			var there bool
			return c.query(ctx, n, fmt.Sprintf("SELECT count(*) = 1 FROM replicated WHERE row = %d", row), &there) == nil && there
		})
		if err = errors.Join(err, e); e != nil && n != leader {
			late = append(late, n.Host.Name)
		}
	}
	return late, err
}

// query runs a statement on n, for at most two seconds. If to is not nil, query
// scans its row.
func (c *Cluster) query(ctx context.Context, n *Node, statement string, to any) error {
	db, err := c.Open(n, "postgres")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if to == nil {
		_, err = db.ExecContext(ctx, statement)
	} else {
		err = db.QueryRowContext(ctx, statement).Scan(to)
	}
	return errors.Join(err, db.Close())
}

// reinitialize has Patroni make the named standbys anew. An error shows by their
// not following later either.
func (c *Cluster) reinitialize(ctx context.Context, names []string) {
	for _, n := range c.Nodes {
		if slices.Contains(names, n.Host.Name) {
			if status, err := call(ctx, http.MethodPost, n.patroniURL("/reinitialize"), object{"force": true}, nil); err == nil && status == http.StatusOK {
				c.Reinitialized++
			}
		}
	}
}

// IsPrimary reports whether Patroni on n says that n is the primary.
func (n *Node) IsPrimary(ctx context.Context) bool {
	status, err := call(ctx, http.MethodOptions, n.patroniURL("/primary"), nil, nil)
	return err == nil && status == http.StatusOK
}

// leader returns the primary. Nodes other than those that are excepted are
// asked.
func (c *Cluster) leader(ctx context.Context, except ...*Node) (*Node, error) {
	for _, n := range c.Nodes {
		excepted := false
		for _, e := range except {
			excepted = excepted || e == n
		}
		if !excepted && n.IsPrimary(ctx) {
			return n, nil
		}
	}
	return nil, fmt.Errorf("cluster: no node is the primary")
}

// Leader waits for a primary among the nodes that are not excepted.
func (c *Cluster) Leader(ctx context.Context, d time.Duration, except ...*Node) (leader *Node, err error) {
	err = poll(ctx, d, "a primary", func(ctx context.Context) bool {
		n, err := c.leader(ctx, except...)
		leader = n
		return err == nil
	})
	return leader, err
}

// Demoted waits until n is not the primary any more.
func (c *Cluster) Demoted(ctx context.Context, d time.Duration, n *Node) error {
	return poll(ctx, d, "a primary to step down", func(ctx context.Context) bool { return !n.IsPrimary(ctx) })
}

// Switchover asks Patroni to make to the primary in place of from, and waits for
// up to a minute for its answer.
func (c *Cluster) Switchover(ctx context.Context, from, to *Node) error {
	slow := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	body, err := json.Marshal(object{"leader": from.Host.Name, "candidate": to.Host.Name})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, from.patroniURL("/switchover"), bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := slow.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("cluster: switchover: %s: %s", response.Status, text)
	}
	return err
}

// An etcdStatus is what a member of etcd reports.
type etcdStatus struct {
	Header struct {
		Member string `json:"member_id"`
	}
	Leader string
}

func (n *Node) etcdStatus(ctx context.Context) (s etcdStatus, err error) {
	status, err := call(ctx, http.MethodPost, fmt.Sprintf("http://%s:%d/v3/maintenance/status", n.Host.IP, etcdPort), object{}, &s)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("cluster: etcd: status %d", status)
	}
	return s, err
}

// EtcdLeader returns the node whose etcd leads.
func (c *Cluster) EtcdLeader(ctx context.Context) (leader *Node, err error) {
	err = poll(ctx, 20*time.Second, "etcd to have a leader", func(ctx context.Context) bool {
		for _, n := range c.Nodes {
			if s, err := n.etcdStatus(ctx); err == nil && s.Leader == s.Header.Member {
				leader = n
				return true
			}
		}
		return false
	})
	return leader, err
}
