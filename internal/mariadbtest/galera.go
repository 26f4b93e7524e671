package mariadbtest

import (
	"errors"
	"fmt"
	"os"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// ErrNoGalera reports that Galera's library or the program that copies a node's
// data was not found.
var ErrNoGalera = errors.New("mariadbtest: no Galera: libgalera_smm.so, rsync or wsrep_sst_rsync was not found")

// galeraLibraries are the places in which packages put Galera's library.
var galeraLibraries = []string{
	"/usr/lib/galera/libgalera_smm.so",
	"/usr/lib/libgalera_smm.so",
	"/usr/lib64/galera-4/libgalera_smm.so",
	"/usr/lib64/galera/libgalera_smm.so",
}

// A GaleraNode is a server with what the other nodes of its cluster need to
// join it.
type GaleraNode struct {
	*Server
	ports []int // for the group, for a copy of all data, and for the latest changes
}

// Close kills the server and removes its files.
func (n *GaleraNode) Close() error {
	defer n.giveBack()
	return n.Server.Close()
}

func (n *GaleraNode) giveBack() {
	for _, port := range n.ports {
		pgtest.GivePortBack(port)
	}
}

// galeraOptions returns the options that load Galera's library into a server
// and leave it switched off. It returns ErrNoGalera without the library.
func galeraOptions() ([]string, error) {
	for _, library := range galeraLibraries {
		if _, err := os.Stat(library); err == nil {
			return []string{
				"--wsrep-provider=" + library, "--wsrep-on=OFF", "--wsrep-cluster-name=latchkey", "--wsrep-sst-method=rsync",
				"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2",
			}, nil
		}
	}
	return nil, ErrNoGalera
}

// StartGalera starts a node that joins the cluster of other. If that is nil, the
// node begins a cluster. The caller must Close it.
func StartGalera(other *GaleraNode) (node *GaleraNode, err error) {
	options, err := galeraOptions()
	if err == nil && (pgtest.Find("rsync") == "" || pgtest.Find("wsrep_sst_rsync") == "") {
		err = ErrNoGalera
	}
	if err != nil {
		return nil, err
	}
	for range 3 { // a program that takes its ports elsewhere may be first
		node = new(GaleraNode)
		var joining []string
		if joining, err = node.joining(other); err == nil {
			node.Server, err = Start(append(options, joining...)...)
		}
		if err == nil {
			return node, nil
		}
		node.giveBack()
	}
	return nil, err
}

// joining returns the options by which a node finds the others. Galera listens
// on one port for the group, and on two for the data that a node lacks.
func (n *GaleraNode) joining(other *GaleraNode) ([]string, error) {
	for range 3 {
		port, err := pgtest.TakePort()
		if err != nil {
			return nil, err
		}
		n.ports = append(n.ports, port)
	}
	options := []string{
		"--wsrep-on=ON",
		fmt.Sprintf("--wsrep-node-address=127.0.0.1:%d", n.ports[0]),
		fmt.Sprintf("--wsrep-sst-receive-address=127.0.0.1:%d", n.ports[1]),
		fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:%d;ist.recv_addr=127.0.0.1:%d;gcache.size=4M", n.ports[0], n.ports[2]),
	}
	if other == nil {
		return append(options, "--wsrep-cluster-address=gcomm://", "--wsrep-new-cluster"), nil
	}
	return append(options, fmt.Sprintf("--wsrep-cluster-address=gcomm://127.0.0.1:%d", other.ports[0])), nil
}
