package databases

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A lockMover is a pooler in session mode with one difference: it carries out
// statements with advisory locks on background connections of its own. It
// forwards the handshake, so the driver sees the process id of the client's own
// server process.
type lockMover struct {
	moverVariant
	listener net.Listener
	server   string
	tasks    sync.WaitGroup

	mu      sync.Mutex // protects the fields below
	shared  *upstream  // the background connection of all clients; nil: none yet
	clients []*moverClient
	closed  bool
}

// A moverVariant says what a lockMover moves, and where it lies.
type moverVariant struct {
	oneForAll bool     // one background connection for all clients, not one for each
	moves     []string // it moves a statement with one of these texts
	simple    bool     // it moves statements of the simple protocol
	prepared  bool     // it moves prepared statements
	hidesPID  bool     // a moved statement shows the process id of the client's own process
	pgLocks   lie
}

// A lie says which background connections pg_locks shows as the own processes
// of their clients.
type lie int

const (
	noLie        lie = iota
	ownLie           // that of the client who looks
	everyonesLie     // that of every client
)

// A moverClient is a client of a lockMover.
type moverClient struct {
	socket     net.Conn
	own        *upstream // the client's own server process
	background *upstream
	moved      map[string]bool // its prepared statements that were moved

	mu       sync.Mutex // protects what follows
	toClient *pgproto3.Backend
	status   byte // of its own transaction
}

// An upstream is a connection to the server.
type upstream struct {
	turn     sync.Mutex // held from a request to the end of its response
	frontend *pgproto3.Frontend
	socket   net.Conn
	pid      uint32
}

// startLockMover starts a lockMover in front of the server of dsn. It returns
// the DSN through it.
func startLockMover(t *testing.T, dsn string, v moverVariant) (through string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	m := &lockMover{moverVariant: v, server: u.Host}
	if m.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u.Host = m.listener.Addr().String()
	m.tasks.Go(func() {
		for {
			socket, err := m.listener.Accept()
			if err != nil {
				return
			}
			m.tasks.Go(func() { m.serve(socket) })
		}
	})
	t.Cleanup(m.close)
	return u.String()
}

func (m *lockMover) close() {
	_ = m.listener.Close()
	m.mu.Lock()
	m.closed = true
	for _, c := range m.clients {
		m.disconnect(c)
	}
	if m.shared != nil {
		_ = m.shared.socket.Close()
	}
	m.mu.Unlock()
	m.tasks.Wait()
}

func (m *lockMover) disconnect(c *moverClient) {
	_ = c.socket.Close()
	_ = c.own.socket.Close()
	if !m.oneForAll {
		_ = c.background.socket.Close()
	}
}

// serve serves a client until it leaves or its own server process ends.
func (m *lockMover) serve(socket net.Conn) {
	defer socket.Close()
	c := &moverClient{socket: socket, toClient: pgproto3.NewBackend(socket, socket), moved: make(map[string]bool)}
	startup, err := receiveStartup(socket, c.toClient)
	if err != nil {
		return
	}
	if c.own, err = m.connect(startup, c.toClient); err != nil {
		return
	}
	defer c.own.socket.Close()
	if err := m.addBackground(c, startup); err != nil {
		return
	}
	defer m.disconnect(c)
	m.tasks.Go(func() {
		_ = c.relay(c.own, func(pgproto3.BackendMessage) bool { return false })
		m.disconnect(c)
	})
	for to := (*upstream)(nil); ; {
		message, err := c.toClient.Receive()
		if err != nil {
			return
		}
		if to == nil { // the first message of a request
			if to = c.own; m.isMoved(c, message) {
				to = c.background
				to.turn.Lock()
			}
		}
		m.rewrite(c, message, to == c.background)
		to.frontend.Send(message)
		switch message.(type) {
		case *pgproto3.Query, *pgproto3.Sync:
		default:
			continue
		}
		err = to.frontend.Flush()
		if to == c.background {
			if err == nil {
				err = c.relay(to, isReady)
			}
			to.turn.Unlock()
		}
		if err != nil {
			return
		}
		to = nil
	}
}

// receiveStartup declines encryption, and returns the client's first message.
func receiveStartup(socket net.Conn, client *pgproto3.Backend) (*pgproto3.StartupMessage, error) {
	for {
		message, err := client.ReceiveStartupMessage()
		if err != nil {
			return nil, err
		}
		if startup, ok := message.(*pgproto3.StartupMessage); ok {
			return startup, nil
		}
		if _, err := socket.Write([]byte("N")); err != nil {
			return nil, err
		}
	}
}

// connect opens a connection to the server, and forwards the handshake to
// client, if that is not nil.
func (m *lockMover) connect(startup *pgproto3.StartupMessage, client *pgproto3.Backend) (*upstream, error) {
	socket, err := net.Dial("tcp", m.server)
	if err != nil {
		return nil, err
	}
	up := &upstream{frontend: pgproto3.NewFrontend(socket, socket), socket: socket}
	up.frontend.Send(startup)
	err = up.frontend.Flush()
	for err == nil {
		var message pgproto3.BackendMessage
		if message, err = up.frontend.Receive(); err != nil {
			break
		}
		if key, ok := message.(*pgproto3.BackendKeyData); ok {
			up.pid = key.ProcessID
		}
		if client != nil {
			client.Send(message)
			err = client.Flush()
		}
		if isReady(message) {
			return up, err
		}
	}
	_ = socket.Close()
	return nil, err
}

// addBackground gives c its background connection.
func (m *lockMover) addBackground(c *moverClient, startup *pgproto3.StartupMessage) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return net.ErrClosed
	}
	c.background = m.shared
	if c.background == nil {
		if c.background, err = m.connect(startup, nil); err != nil {
			return err
		}
		if m.oneForAll {
			m.shared = c.background
		}
	}
	m.clients = append(m.clients, c)
	return nil
}

// relay forwards messages of from to the client until last holds. The status of
// a transaction is that of the client's own process.
func (c *moverClient) relay(from *upstream, last func(pgproto3.BackendMessage) bool) error {
	for {
		message, err := from.frontend.Receive()
		if err != nil {
			return err
		}
		c.mu.Lock()
		if ready, ok := message.(*pgproto3.ReadyForQuery); ok {
			if from == c.own {
				c.status = ready.TxStatus
			} else if c.status != 0 {
				ready.TxStatus = c.status
			}
		}
		c.toClient.Send(message)
		err = c.toClient.Flush()
		c.mu.Unlock()
		if err != nil || last(message) {
			return err
		}
	}
}

func isReady(message pgproto3.BackendMessage) bool {
	_, ready := message.(*pgproto3.ReadyForQuery)
	return ready
}

// isMoved reports whether a request that begins with message goes to the
// background connection.
func (m *lockMover) isMoved(c *moverClient, message pgproto3.FrontendMessage) bool {
	contains := func(query string) bool {
		return slices.ContainsFunc(m.moves, func(text string) bool { return strings.Contains(query, text) })
	}
	switch message := message.(type) {
	case *pgproto3.Query:
		return m.simple && contains(message.String)
	case *pgproto3.Parse:
		c.moved[message.Name] = m.prepared && contains(message.Query)
		return c.moved[message.Name]
	case *pgproto3.Bind:
		return c.moved[message.PreparedStatement]
	case *pgproto3.Describe:
		return message.ObjectType == 'S' && c.moved[message.Name]
	case *pgproto3.Close:
		return message.ObjectType == 'S' && c.moved[message.Name]
	}
	return false
}

var (
	backendPID = regexp.MustCompile(`(pg_catalog\.)?pg_backend_pid\(\)`)
	pgLocksAs  = regexp.MustCompile(`(pg_catalog\.)?pg_locks( AS \w+)?`)
)

// rewrite puts the lies of m into a statement. Names of prepared statements get
// the process id of the client, since clients may share a connection.
func (m *lockMover) rewrite(c *moverClient, message pgproto3.FrontendMessage, moved bool) {
	text := func(query string) string {
		if moved && m.hidesPID {
			query = backendPID.ReplaceAllString(query, strconv.Itoa(int(c.own.pid)))
		}
		if m.pgLocks != noLie {
			query = pgLocksAs.ReplaceAllStringFunc(query, func(found string) string {
				as := " AS pg_locks"
				if i := strings.Index(found, " AS "); i >= 0 {
					as = found[i:]
				}
				return m.lyingLocks(c) + as
			})
		}
		return query
	}
	name := func(name string) string {
		if moved && name != "" {
			return fmt.Sprint(name, "_", c.own.pid)
		}
		return name
	}
	switch message := message.(type) {
	case *pgproto3.Query:
		message.String = text(message.String)
	case *pgproto3.Parse:
		message.Name, message.Query = name(message.Name), text(message.Query)
	case *pgproto3.Bind:
		message.PreparedStatement = name(message.PreparedStatement)
	case *pgproto3.Describe:
		message.Name = name(message.Name)
	case *pgproto3.Close:
		message.Name = name(message.Name)
	}
}

// lyingLocks returns pg_locks with background connections replaced.
func (m *lockMover) lyingLocks(c *moverClient) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	pid := "CASE pid"
	for _, other := range m.clients {
		if other == c || m.pgLocks == everyonesLie {
			pid += fmt.Sprintf(" WHEN %d THEN %d", other.background.pid, other.own.pid)
		}
	}
	return "(SELECT locktype, database, classid, objid, objsubid, " + pid + " ELSE pid END AS pid, mode, granted, fastpath FROM pg_catalog.pg_locks)"
}
