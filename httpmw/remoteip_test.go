package httpmw_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
)

var netipZero netip.Prefix

// Results other than an id.
const (
	bad     = "malformed" // ErrBadID
	unnamed = "unnamed"   // ErrNoKey
)

var remoteIPTests = []struct {
	name    string
	trusted string // prefixes, parted by spaces
	peer    string
	xff     string // X-Forwarded-For lines, parted by |
	want    string
}{
	{"IPv4", "", "192.0.2.7:1234", "", "192.0.2.7"},
	{"IPv4, no port", "", "192.0.2.7", "", "192.0.2.7"},
	{"IPv6 by /64", "", "[2001:db8:1:2:3:4:5:6]:1234", "", "2001:db8:1:2::/64"},
	{"IPv6, no port", "", "2001:db8:1:2:3:4:5:6", "", "2001:db8:1:2::/64"},
	{"IPv6 in brackets", "", "[2001:db8::1]", "", "2001:db8::/64"},
	{"IPv4-mapped", "", "[::ffff:192.0.2.7]:1234", "", "192.0.2.7"},
	{"zone", "", "[fe80::1%eth0]:1234", "", "fe80::/64"},
	{"no address", "", "", "", bad},
	{"a socket's name", "", "@", "", unnamed},
	{"a socket's name, header not trusted", "", "@", "203.0.113.9", unnamed},
	{"a socket's name, no header", "127.0.0.0/8", "@", "", unnamed},
	{"a socket's name, trusted", "127.0.0.0/8", "@", "203.0.113.9", "203.0.113.9"},
	{"a socket's name, two hops", "10.0.0.0/8", "@", "198.51.100.1, 203.0.113.9, 10.0.0.2", "203.0.113.9"},
	{"a socket's name, malformed", "10.0.0.0/8", "@", "nonsense", bad},

	{"NAT64", "", "[64:ff9b::192.0.2.7]:1234", "", "192.0.2.7"},
	{"NAT64, another client", "", "[64:ff9b::192.0.2.8]:1234", "", "192.0.2.8"},
	{"NAT64, forwarded", "10.0.0.0/8", "10.0.0.1:1", "64:ff9b::cb00:7109", "203.0.113.9"},
	{"NAT64 is no proxy of IPv4", "10.0.0.0/8", "[64:ff9b::10.0.0.1]:1", "203.0.113.9", "10.0.0.1"},
	{"NAT64 proxy", "64:ff9b::10.0.0.0/104", "[64:ff9b::10.0.0.1]:1", "203.0.113.9", "203.0.113.9"},
	{"NAT64 for local use, /96", "", "[64:ff9b:1::192.0.2.7]:1", "", "64:ff9b:1::c000:207/128"},
	{"NAT64 for local use, /48", "", "[64:ff9b:1:c000:2:700::]:1", "", "64:ff9b:1:c000:2:700::/128"},
	{"beside NAT64", "", "[64:ff9b:0:0:1::1]:1", "", "64:ff9b::/64"},
	{"a host name", "", "localhost:80", "", bad},
	{"half a bracket", "", "[2001:db8::1", "", bad},
	{"leading zeros", "", "192.0.02.7:1", "", bad},

	{"not trusted: header ignored", "", "192.0.2.7:1", "203.0.113.9", "192.0.2.7"},
	{"not trusted: nonsense ignored", "10.0.0.0/8", "192.0.2.7:1", "nonsense", "192.0.2.7"},
	{"trusted: one hop", "10.0.0.0/8", "10.0.0.1:1", "203.0.113.9", "203.0.113.9"},
	{"trusted: no header", "10.0.0.0/8", "10.0.0.1:1", "", "10.0.0.1"},
	{"spoofed on the left", "10.0.0.0/8", "10.0.0.1:1", "198.51.100.1, 203.0.113.9", "203.0.113.9"},
	{"spoofed nonsense on the left", "10.0.0.0/8", "10.0.0.1:1", "nonsense,, 203.0.113.9", "203.0.113.9"},
	{"spoofed as a proxy", "10.0.0.0/8", "10.0.0.1:1", "10.0.0.9, 203.0.113.9", "203.0.113.9"},
	{"spoofed in a line before", "10.0.0.0/8", "10.0.0.1:1", "198.51.100.1|203.0.113.9", "203.0.113.9"},
	{"two hops", "10.0.0.0/8", "10.0.0.1:1", "198.51.100.1, 203.0.113.9, 10.0.0.2", "203.0.113.9"},
	{"two hops in two lines", "10.0.0.0/8", "10.0.0.1:1", "203.0.113.9|10.0.0.2", "203.0.113.9"},
	{"all are proxies", "10.0.0.0/8", "10.0.0.1:1", "10.0.0.3, 10.0.0.2", "10.0.0.3"},
	{"IPv6 client", "10.0.0.0/8", "10.0.0.1:1", "2001:db8::5", "2001:db8::/64"},
	{"with a port", "10.0.0.0/8", "10.0.0.1:1", "203.0.113.9:5678", "203.0.113.9"},
	{"IPv6 with a port", "10.0.0.0/8", "10.0.0.1:1", "[2001:db8::5]:5678", "2001:db8::/64"},
	{"IPv6 in brackets, forwarded", "10.0.0.0/8", "10.0.0.1:1", "[2001:db8::5]", "2001:db8::/64"},
	{"no spaces, and tabs", "10.0.0.0/8", "10.0.0.1:1", "198.51.100.1,\t203.0.113.9 ", "203.0.113.9"},
	{"IPv4-mapped client", "10.0.0.0/8", "10.0.0.1:1", "::ffff:203.0.113.9", "203.0.113.9"},
	{"IPv4-mapped proxy", "10.0.0.0/8", "[::ffff:10.0.0.1]:1", "203.0.113.9", "203.0.113.9"},
	{"IPv4-mapped prefix", "::ffff:10.0.0.0/104", "10.0.0.1:1", "203.0.113.9", "203.0.113.9"},
	{"IPv4-mapped prefix of all", "::ffff:0.0.0.0/96", "10.0.0.1:1", "203.0.113.9", "203.0.113.9"},
	{"one IPv6 proxy, and another", "2001:db8:f::1/128", "[2001:db8:e::1]:1", "203.0.113.9", "2001:db8:e::/64"},
	{"IPv6 proxy", "2001:db8:f::/48", "[2001:db8:f::1]:1", "203.0.113.9", "203.0.113.9"},
	{"IPv6 proxy with a zone", "fe80::/10", "[fe80::1%eth0]:1", "203.0.113.9", "203.0.113.9"},
	{"several prefixes", "10.0.0.0/8 172.16.0.0/12", "172.16.0.1:1", "203.0.113.9, 10.0.0.1", "203.0.113.9"},
	{"prefix not masked", "10.1.2.3/8", "10.0.0.1:1", "203.0.113.9", "203.0.113.9"},
	{"malformed on the right", "10.0.0.0/8", "10.0.0.1:1", "203.0.113.9, nonsense", bad},
	{"empty on the right", "10.0.0.0/8", "10.0.0.1:1", "203.0.113.9,", bad},
	{"empty on the left", "10.0.0.0/8", "10.0.0.1:1", ",10.0.0.2", bad},
	{"unknown", "10.0.0.0/8", "10.0.0.1:1", "unknown", bad},
	{"malformed behind a proxy", "10.0.0.0/8", "10.0.0.1:1", "nonsense, 10.0.0.2", bad},
}

func TestRemoteIP(t *testing.T) {
	t.Parallel()
	for _, tt := range remoteIPTests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := request("/")
			r.RemoteAddr = tt.peer
			if tt.xff != "" {
				for line := range strings.SplitSeq(tt.xff, "|") {
					r.Header.Add("X-Forwarded-For", line)
				}
			}
			got, err := httpmw.RemoteIP(parsePrefixes(tt.trusted)...)(r)
			switch {
			case tt.want == bad && !errors.Is(err, ratelimit.ErrBadID):
				t.Errorf("got %q, %v; want ErrBadID", got, err)
			case tt.want == unnamed && !errors.Is(err, httpmw.ErrNoKey):
				t.Errorf("got %q, %v; want ErrNoKey", got, err)
			case tt.want != bad && tt.want != unnamed && (err != nil || got != tt.want):
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			case err != nil && strings.Contains(err.Error(), "nonsense"):
				t.Errorf("%q holds what came in the request", err)
			}
		})
	}
}

func parsePrefixes(list string) []netip.Prefix {
	var prefixes []netip.Prefix
	for field := range strings.FieldsSeq(list) {
		prefixes = append(prefixes, netip.MustParsePrefix(field))
	}
	return prefixes
}

// A client cannot change its id by what it writes to the left of the proxy's
// entry.
func FuzzRemoteIPSpoofing(f *testing.F) {
	for _, tt := range remoteIPTests {
		f.Add(tt.xff)
	}
	key := httpmw.RemoteIP(netip.MustParsePrefix("10.0.0.0/8"))
	f.Fuzz(func(t *testing.T, spoofed string) {
		for _, lines := range [][]string{{spoofed + ", 203.0.113.9"}, {spoofed, "203.0.113.9"}} {
			r := request("/")
			r.RemoteAddr = "10.0.0.1:1"
			r.Header["X-Forwarded-For"] = lines
			if got, err := key(r); err != nil || got != "203.0.113.9" {
				t.Errorf("%q: got %q, %v", lines, got, err)
			}
		}
	})
}

// On a real Unix socket the proxy's header identifies a client, and each client
// has an id of its own. The client's socket may have a name, too.
func TestRemoteIPOnUnixSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "server.sock"))
	if err != nil {
		t.Fatal(err)
	}
	key := httpmw.RemoteIP(netip.MustParsePrefix("127.0.0.0/8"))
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := key(r)
		_, _ = fmt.Fprint(w, id, err)
	}))
	s.Listener.Close()
	s.Listener = listener
	s.Start()
	t.Cleanup(s.Close)
	for _, dialer := range []net.Dialer{{}, {LocalAddr: &net.UnixAddr{Name: filepath.Join(dir, "client.sock"), Net: "unix"}}} {
		conn, err := dialer.DialContext(t.Context(), "unix", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		for _, client := range []string{"203.0.113.9", "203.0.113.10"} {
			transmit(t, conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: "+client+"\r\n\r\n")
			if got := response(t, conn).Text; got != client+"<nil>" {
				t.Errorf("%v: id %s, want %s", conn.LocalAddr(), got, client)
			}
		}
	}
}
