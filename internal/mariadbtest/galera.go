package mariadbtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
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
	group int // the port for the other nodes
}

// GaleraOptions returns the options that load Galera's library into a server
// and leave it switched off. It returns ErrNoGalera without the library.
func GaleraOptions() ([]string, error) {
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
	dirs := strings.Split(os.Getenv("PATH"), ":")
	options, err := GaleraOptions()
	if err == nil && (programIn(dirs, "rsync") == "" || programIn(dirs, "wsrep_sst_rsync") == "") {
		err = ErrNoGalera
	}
	if err != nil {
		return nil, err
	}
	for range 3 { // another process may take a port first
		node = new(GaleraNode)
		var joining []string
		if joining, err = node.joining(other); err != nil {
			return nil, err
		}
		if node.Server, err = Start(append(options, joining...)...); err == nil {
			return node, nil
		}
	}
	return nil, err
}

// joining returns the options by which a node finds the others. Galera listens
// on one port for the group, and on two for the data that a node lacks.
func (n *GaleraNode) joining(other *GaleraNode) ([]string, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	n.group = ports[0]
	options := []string{
		"--wsrep-on=ON",
		fmt.Sprintf("--wsrep-node-address=127.0.0.1:%d", n.group),
		fmt.Sprintf("--wsrep-sst-receive-address=127.0.0.1:%d", ports[1]),
		fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:%d;ist.recv_addr=127.0.0.1:%d;gcache.size=4M", n.group, ports[2]),
	}
	if other == nil {
		return append(options, "--wsrep-cluster-address=gcomm://", "--wsrep-new-cluster"), nil
	}
	return append(options, fmt.Sprintf("--wsrep-cluster-address=gcomm://127.0.0.1:%d", other.group)), nil
}

// freePorts returns n ports of 127.0.0.1 on which no process listens.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // not before all are found
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
