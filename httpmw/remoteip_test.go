package httpmw_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
)

var netipZero netip.Prefix

const bad = "malformed"

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
	{"a socket's name", "", "@", "", bad},
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
	{"IPv6 proxy", "2001:db8:f::/48", "[2001:db8:f::1]:1", "203.0.113.9", "203.0.113.9"},
	{"IPv6 proxy with a zone", "fe80::/10", "[fe80::1%eth0]:1", "203.0.113.9", "203.0.113.9"},
	{"several prefixes", "10.0.0.0/8 172.16.0.0/12", "172.16.0.1:1", "203.0.113.9, 10.0.0.1", "203.0.113.9"},
	{"prefix not masked", "10.1.2.3/8", "10.0.0.1:1", "203.0.113.9", "203.0.113.9"},
	{"malformed on the right", "10.0.0.0/8", "10.0.0.1:1", "203.0.113.9, nonsense", bad},
	{"empty on the right", "10.0.0.0/8", "10.0.0.1:1", "203.0.113.9,", bad},
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
			case tt.want != bad && (err != nil || got != tt.want):
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

// Whatever a client writes to the left of what the proxy adds, it stays who the
// proxy has seen.
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

// An id is always an address or a /64, whatever comes.
func FuzzRemoteIP(f *testing.F) {
	for _, tt := range remoteIPTests {
		f.Add(tt.peer, tt.xff)
	}
	key := httpmw.RemoteIP(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:f::/48"))
	f.Fuzz(func(t *testing.T, peer, xff string) {
		r := request("/")
		r.RemoteAddr = peer
		r.Header["X-Forwarded-For"] = []string{xff}
		id, err := key(r)
		if err != nil {
			if !errors.Is(err, ratelimit.ErrBadID) {
				t.Errorf("got %v, want ErrBadID", err)
			}
			return
		}
		addr, err := netip.ParseAddr(id)
		if err == nil && addr.Is4() {
			return
		}
		p, err := netip.ParsePrefix(id)
		if err != nil || p.Bits() != 64 || p.Masked() != p || p.Addr().Is4In6() {
			t.Errorf("%q is no IPv4 address and no /64", id)
		}
	})
}
