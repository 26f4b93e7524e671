package httpmw

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ipv6Bits is the length of the part of an IPv6 address that is the id. A
// client controls at least a /64, and could use another address for each
// request.
const ipv6Bits = 64

// Addresses that a translator (NAT64) makes of IPv4 addresses. Without a rule
// of their own, all clients behind a translator would be one /64.
var (
	// nat64 has the IPv4 address in its last 32 bits (RFC 6052).
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
	// localNAT64 has it in a place that the network's operator chooses (RFC
	// 8215).
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
)

var (
	errPeer          = fmt.Errorf("%w: the peer's address is malformed", ErrBadID)
	errForwarded     = fmt.Errorf("%w: X-Forwarded-For is malformed", ErrBadID)
	errUnixPeer      = fmt.Errorf("%w: the peer is on a Unix socket: pass RemoteIP the prefixes of the proxies to trust", ErrNoKey)
	errUnixForwarded = fmt.Errorf("%w: the peer is on a Unix socket and sent no X-Forwarded-For", ErrNoKey)
)

// RemoteIP takes the client's IP address for the id. People behind one address
// share it: prefer an identity where there is one.
//
//   - An IPv4 address is the id as it is.
//   - An IPv6 address gives its /64.
//   - An IPv4-mapped address, or one of 64:ff9b::/96 (NAT64), gives the IPv4
//     address in it. So a client has one id, with or without a translator.
//   - An address of 64:ff9b:1::/48 (NAT64 for local use) is the id as it is.
//
// Forwarding headers count only if the peer is one of the trusted proxies. The
// id is then the right-most address in X-Forwarded-For that is not a proxy's.
// That address is the one that a trusted proxy saw itself. If all are proxies',
// the id is the left-most. Without the header it is the peer's.
//
// A peer on a Unix socket has no address. It is a local proxy, and is trusted
// if trusted has at least one prefix. It must send X-Forwarded-For. Otherwise
// the error matches [ErrNoKey] and says what is missing. An IP address in
// RemoteAddr counts here too, since a handler around may have set it. So let
// only the proxy open the socket: another process could give its own socket
// such a name.
//
// A malformed address on the way to the id is [ErrBadID]. RemoteIP
// panics if a prefix is not valid.
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
		return addrID(addr), nil
	}
}

// addrID returns the id of a client with addr, which is not IPv4-mapped.
func addrID(addr netip.Addr) string {
	switch {
	case addr.Is4():
		return addr.String()
	case nat64.Contains(addr):
		bytes := addr.As16()
		return netip.AddrFrom4([4]byte(bytes[12:])).String()
	case localNAT64.Contains(addr):
		return netip.PrefixFrom(addr, addr.BitLen()).String()
	}
	return netip.PrefixFrom(addr, ipv6Bits).Masked().String()
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
	return slices.ContainsFunc(ps, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// client returns the address of the client that sent r.
func (ps prefixes) client(r *http.Request) (netip.Addr, error) {
	lines := r.Header.Values("X-Forwarded-For")
	addr, ok := parseAddr(r.RemoteAddr)
	if !ok {
		if err := ps.unixPeer(r, lines); err != nil {
			return addr, err
		}
	}
	trusted := !ok || ps.contain(addr)
	for rest, more := strings.Join(lines, ","), len(lines) > 0; more && trusted; {
		i := strings.LastIndexByte(rest, ',')
		if addr, ok = parseAddr(strings.Trim(rest[i+1:], " \t")); !ok {
			return addr, errForwarded
		}
		trusted = ps.contain(addr)
		if more = i >= 0; more {
			rest = rest[:i]
		}
	}
	return addr, nil
}

// unixPeer returns why lines, of X-Forwarded-For, cannot say where r comes
// from. It is for a peer without an IP address, and returns nil if they can.
func (ps prefixes) unixPeer(r *http.Request, lines []string) error {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	switch onSocket := local != nil && local.Network() == "unix"; {
	case !onSocket && r.RemoteAddr != "@": // the name of a client's socket that has none
		return errPeer
	case len(ps) == 0:
		return errUnixPeer
	case len(lines) == 0:
		return errUnixForwarded
	}
	return nil
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
