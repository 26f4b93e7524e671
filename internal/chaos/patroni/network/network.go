//go:build linux

// Package network is a small network of hosts in a sandbox. Each host is a
// network namespace with one card. The cards are plugged into a switch, to which
// this process is connected, too. There is a second switch: hosts that are
// plugged in there see each other, and no other host.
package network

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// A Host is one by its name, which is also that of its plug in the switch.
type Host struct {
	Name string
	IP   string
}

// The switches.
const (
	main = "switch"
	side = "sideswitch"
)

const subnet = "10.77.0."

// self is the address of this process.
const self = 254

// A Network is for one goroutine.
type Network struct {
	Hosts []Host
}

// New makes a network of hosts with these names.
func New(names ...string) (*Network, error) {
	n := &Network{}
	for i, name := range names {
		n.Hosts = append(n.Hosts, Host{Name: name, IP: fmt.Sprint(subnet, i+1)})
	}
	return n, ip(n.setUp())
}

// setUp returns the commands that make the network. Every host knows the card
// of every other one in advance: a host that is cut off meets silence, and no
// error because an address is not found.
func (n *Network) setUp() (commands []string) {
	add := func(format string, args ...any) { commands = append(commands, fmt.Sprintf(format, args...)) }
	add("link set lo up")
	for _, bridge := range []string{main, side} {
		add("link add %s type bridge", bridge)
		add("link set %s up", bridge)
	}
	add("link set %s address %s", main, card(self))
	add("address add %s%d/24 dev %s", subnet, self, main)
	for i, h := range n.Hosts {
		add("netns add %s", h.Name)
		add("link add %s type veth peer name eth0 netns %s", h.Name, h.Name)
		add("link set %s master %s up", h.Name, main)
		add("-n %s link set lo up", h.Name)
		add("-n %s link set eth0 address %s up", h.Name, card(i+1))
		add("-n %s address add %s/24 dev eth0", h.Name, h.IP)
		add("neighbour add %s lladdr %s dev %s nud permanent", h.IP, card(i+1), main)
		add("-n %s neighbour add %s%d lladdr %s dev eth0 nud permanent", h.Name, subnet, self, card(self))
		for j, other := range n.Hosts {
			if j != i {
				add("-n %s neighbour add %s lladdr %s dev eth0 nud permanent", h.Name, other.IP, card(j+1))
			}
		}
	}
	return commands
}

// card is the hardware address of the i-th host.
func card(i int) string { return fmt.Sprintf("02:00:00:00:00:%02x", i) }

// Cut unplugs h. Its card does not notice.
func (n *Network) Cut(h Host) error { return ip([]string{"link set " + h.Name + " nomaster"}) }

// Aside plugs hosts into the second switch.
func (n *Network) Aside(hosts ...Host) error { return n.plug(side, hosts) }

// Mend plugs hosts into the switch again.
func (n *Network) Mend(hosts ...Host) error { return n.plug(main, hosts) }

func (n *Network) plug(bridge string, hosts []Host) error {
	var commands []string
	for _, h := range hosts {
		commands = append(commands, "link set "+h.Name+" master "+bridge)
	}
	return ip(commands)
}

// ip runs commands of the program ip, one after the other.
func ip(commands []string) error {
	for _, command := range commands {
		out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("network: ip %s: %w: %s", command, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

func path(host string) string { return "/run/netns/" + host }

// Command returns a command that runs a program on h, under an account if it is
// not nil. The process keeps its number when it becomes the program.
func (h Host) Command(account *syscall.Credential, program string, args ...string) *exec.Cmd {
	all := []string{"--net=" + path(h.Name)}
	if account != nil {
		all = append(all, fmt.Sprintf("--setgid=%d", account.Gid), fmt.Sprintf("--setuid=%d", account.Uid))
	}
	return exec.Command("nsenter", append(append(all, "--", program), args...)...)
}

const hostVariable = "LATCHKEY_HOST"

// Env is what brings a process of this program to h, if it calls Enter.
func (h Host) Env() string { return hostVariable + "=" + h.Name }

// Enter brings this process to the host that Env has named, and starts the
// program anew there. Without Env it does nothing. Call it first in main.
func Enter() {
	host, ok := os.LookupEnv(hostVariable)
	if !ok {
		return
	}
	err := os.Unsetenv(hostVariable)
	var nsenter, program string
	if err == nil {
		nsenter, err = exec.LookPath("nsenter")
	}
	if err == nil {
		program, err = os.Executable()
	}
	if err == nil {
		err = syscall.Exec(nsenter, append([]string{"nsenter", "--net=" + path(host), "--", program}, os.Args[1:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "network:", err)
	os.Exit(1)
}
