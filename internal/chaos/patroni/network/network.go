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
type Host struct{ Name, IP string }

// The switches.
const (
	main = "switch"
	side = "sideswitch"
)

// self is the number of this process' own card.
const self = 254

func address(i int) string { return fmt.Sprintf("10.77.0.%d", i) }
func card(i int) string    { return fmt.Sprintf("02:00:00:00:00:%02x", i) }

// New makes a network of hosts with these names. Every host knows the card of
// every other one in advance: a host that is cut off meets silence, and no error
// because an address is not found.
func New(names ...string) (hosts []Host, err error) {
	commands := []string{
		"link set lo up",
		"link add " + main + " type bridge", "link add " + side + " type bridge",
		"link set " + main + " address " + card(self) + " up", "link set " + side + " up",
		"address add " + address(self) + "/24 dev " + main,
	}
	know := func(host, dev string, i int) {
		commands = append(commands, fmt.Sprintf("%sneighbour add %s lladdr %s dev %s nud permanent", host, address(i), card(i), dev))
	}
	for i, name := range names {
		i++
		hosts = append(hosts, Host{Name: name, IP: address(i)})
		commands = append(commands,
			"netns add "+name,
			"link add "+name+" type veth peer name eth0 netns "+name,
			"link set "+name+" master "+main+" up",
			"-n "+name+" link set lo up",
			"-n "+name+" link set eth0 address "+card(i)+" up",
			"-n "+name+" address add "+address(i)+"/24 dev eth0")
		know("", main, i)
		know("-n "+name+" ", "eth0", self)
		for other := range names {
			if other+1 != i {
				know("-n "+name+" ", "eth0", other+1)
			}
		}
	}
	return hosts, ip(commands)
}

// Cut unplugs h. Its card does not notice.
func Cut(h Host) error { return ip([]string{"link set " + h.Name + " nomaster"}) }

// Aside plugs hosts into the second switch.
func Aside(hosts ...Host) error { return plug(side, hosts) }

// Mend plugs hosts into the switch again.
func Mend(hosts ...Host) error { return plug(main, hosts) }

func plug(bridge string, hosts []Host) error {
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

func path(host string) string { return "--net=/run/netns/" + host }

// Command returns a command that runs a program on h, under an account if it is
// not nil. The process keeps its number when it becomes the program.
func (h Host) Command(account *syscall.Credential, program string, args ...string) *exec.Cmd {
	all := []string{path(h.Name)}
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
	nsenter, err2 := exec.LookPath("nsenter")
	program, err3 := os.Executable()
	if err == nil && err2 == nil && err3 == nil {
		err = syscall.Exec(nsenter, append([]string{"nsenter", path(host), "--", program}, os.Args[1:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "network:", err, err2, err3)
	os.Exit(1)
}
