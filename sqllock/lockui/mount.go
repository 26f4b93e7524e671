package lockui

import (
	"net/http"
	"net/url"
	"strings"
)

// pathBelow returns the path of r below the mount point: "" for the first page. A
// path that is none of this page's is "/". bare says that r is for the mount point
// without its slash.
//
// Without http.StripPrefix the pattern of the router is the mount point. Below it
// the escaped path must be the path, so no escape stands for a slash or a dot.
func pathBelow(r *http.Request) (below string, bare bool) {
	below, bare, ok := cutMount(r.URL.Path, r.Pattern)
	if !ok {
		below = strings.TrimPrefix(r.URL.Path, "/") // which a StripPrefix may have taken too
		bare = r.URL.Path == "" && folder(r) != ""
	}
	if !bare && !strings.HasSuffix("/"+strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/"+below) {
		return "/", false
	}
	return below, bare
}

// cutMount returns what path has after the mount point, and false if the pattern is
// not the mount point of path. A segment in braces stands for any segment. At the
// end, "{name...}", and "*" of chi, stand for the rest. A pattern that ends
// otherwise is the mount point without its slash.
func cutMount(path, pattern string) (below string, bare, ok bool) {
	at := strings.IndexByte(pattern, '/') // after the method and the host
	if at < 0 || strings.HasSuffix(pattern, "{$}") {
		return "", false, false
	}
	prefix, last := pattern[at+1:], ""
	if slash := strings.LastIndexByte(prefix, '/'); slash >= 0 {
		prefix, last = prefix[:slash], prefix[slash+1:]
	} else {
		prefix, last = "", prefix
	}
	if last != "" && last != "*" && !strings.HasSuffix(last, "...}") {
		prefix = strings.TrimPrefix(prefix+"/"+last, "/")
	}
	below = strings.TrimPrefix(path, "/")
	if prefix == "" {
		return below, false, true
	}
	for segment := range strings.SplitSeq(prefix, "/") {
		first, after, slash := strings.Cut(below, "/")
		if bare || first != segment && !strings.HasPrefix(segment, "{") {
			return "", false, false
		}
		below, bare = after, !slash
	}
	return below, bare, true
}

// folder returns the last segment of the path that the client has asked for.
func folder(r *http.Request) string {
	asked, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		return ""
	}
	path := asked.EscapedPath()
	return path[strings.LastIndexByte(path, '/')+1:]
}

// redirectToFolder sends a request for the mount point to the address with a slash.
// That is relative, so it holds behind a proxy that shows another prefix.
func redirectToFolder(w http.ResponseWriter, r *http.Request) {
	name := folder(r)
	if name == "" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "There is no such page.", http.StatusNotFound)
		return
	}
	w.Header().Set("Location", "./"+name+"/")
	w.WriteHeader(http.StatusPermanentRedirect)
}
