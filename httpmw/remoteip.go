package httpmw

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/latchkey-go/latchkey/ratelimit"
)

// Who has IPv6 has a /64 at the least, and could use an address of it for each
// request.
const ipv6Bits = 64

var (
	errPeer      = fmt.Errorf("httpmw: remote IP: %w: the peer's address is malformed", ratelimit.ErrBadID)
	errForwarded = fmt.Errorf("httpmw: remote IP: %w: X-Forwarded-For is malformed", ratelimit.ErrBadID)
)

// RemoteIP takes the client's IP address for the id: of IPv6 the /64, of an
// IPv4-mapped one the IPv4 address. People behind one address share it; prefer
// an identity where there is one.
//
// Forwarding headers are ignored unless the peer is one of the trusted proxies:
// then the id is the right-most address in X-Forwarded-For that is not theirs,
// which is the one that a proxy has seen with its own eyes. If all are theirs it
// is the left-most, and without the header the peer's. A malformed address on
// the way there is refused.
//
// It panics if a prefix is not valid.
func RemoteIP(trusted ...netip.Prefix) KeyFunc {
	proxies := make(prefixes, len(trusted))
	for i, p := range trusted {
		if !p.IsValid() {
			panic("httpmw: RemoteIP needs prefixes that are valid")
		}
		proxies[i] = unmapped(p)
	}
	return func(r *http.Request) (string, error) {
		addr, err := proxies.client(r)
		if err != nil {
			return "", err
		}
		if addr.Is4() {
			return addr.String(), nil
		}
		return netip.PrefixFrom(addr, ipv6Bits).Masked().String(), nil
	}
}

// prefixes are the networks of trusted proxies, none of them IPv4-mapped.
type prefixes []netip.Prefix

func unmapped(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

func (ps prefixes) contain(addr netip.Addr) bool {
	for _, p := range ps {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// client is the address of who sent r.
func (ps prefixes) client(r *http.Request) (netip.Addr, error) {
	addr, ok := parseAddr(r.RemoteAddr)
	if !ok {
		return addr, errPeer
	}
	lines := r.Header.Values("X-Forwarded-For")
	if len(lines) == 0 {
		return addr, nil
	}
	rest, more := strings.Join(lines, ","), true
	for more && ps.contain(addr) {
		var last string
		rest, last, more = cutLast(rest)
		if addr, ok = parseAddr(strings.Trim(last, " \t")); !ok {
			return addr, errForwarded
		}
	}
	return addr, nil
}

// cutLast splits list before its last element and reports whether there is
// anything before it.
func cutLast(list string) (rest, last string, more bool) {
	i := strings.LastIndexByte(list, ',')
	if i < 0 {
		return "", list, false
	}
	return list[:i], list[i+1:], true
}

// parseAddr reads an address with or without a port, as some proxies add one,
// and without its zone, which has a meaning on one host only.
func parseAddr(s string) (netip.Addr, bool) {
	var addr netip.Addr
	if ap, err := netip.ParseAddrPort(s); err == nil {
		addr = ap.Addr()
	} else {
		if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(inner, "]") {
			s = strings.TrimSuffix(inner, "]")
		}
		if addr, err = netip.ParseAddr(s); err != nil {
			return addr, false
		}
	}
	return addr.Unmap().WithZone(""), true
}
