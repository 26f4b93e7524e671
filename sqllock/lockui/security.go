package lockui

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// policy allows the page's own script and style sheet, and nothing inline. So
// markup that got past the templates would still run nothing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// setSecurityHeaders sets the headers that every response has, errors included.
//
// The Referrer-Policy is not "no-referrer". Browsers would then send the forms of
// this page with "Origin: null". On plain HTTP the check for cross-site requests
// would reject them.
func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Robots-Tag", "noindex, nofollow")
	h.Set("Cache-Control", "no-store")
}

// refusal returns why r may not see the page, or "".
func (h *Handler) refusal(r *http.Request) string {
	if h.options.authorize != nil {
		if !h.options.authorize(r) {
			return "You may not see this page."
		}
		return ""
	}
	if why := notLocal(r); why != "" {
		return why + " Without lockui.WithAuthorize this page answers only requests from its own machine, by the name localhost or a loopback address."
	}
	return ""
}

// proxyHeaders are the beginnings of the headers that proxies and tunnels add. Then
// the address of the connection is the proxy's, and says nothing about the client.
// Their values never count, since any client can write them.
var proxyHeaders = []string{
	"Forwarded", "Via", "X-Forwarded", "X-Original-Forwarded", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "X-Envoy-", "Cf-", "Cdn-Loop",
}

// throughProxy reports whether a header of r is one that proxies add.
func throughProxy(r *http.Request) bool {
	for name := range r.Header {
		if slices.ContainsFunc(proxyHeaders, func(start string) bool { return strings.HasPrefix(name, start) }) {
			return true
		}
	}
	return false
}

// notLocal returns why r does not come from this machine, or "". The Host counts
// too: a web site whose name resolves to 127.0.0.1 makes a browser on this machine
// send requests that name the site (DNS rebinding).
func notLocal(r *http.Request) string {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	switch {
	case err != nil || !remote.Addr().Unmap().IsLoopback():
		return "This request came over the network."
	case throughProxy(r):
		return "This request came through a proxy."
	case !loopbackHost(r.Host):
		return "This request names another host."
	}
	return ""
}

// loopbackHost reports whether host, with or without a port, names this machine
// whatever a name server says.
func loopbackHost(host string) bool {
	name := host
	if at := strings.LastIndexByte(host, ':'); at >= 0 && !strings.HasSuffix(host, "]") {
		name = host[:at]
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	if bare, ok := strings.CutPrefix(name, "["); ok {
		name = strings.TrimSuffix(bare, "]")
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Unmap().IsLoopback()
}

// fromOtherSite reports whether another web site made a browser send r, other than
// by a link that a person followed. The site could not read the response, but it
// could make the page ask the database.
func fromOtherSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Mode") != "navigate"
}
