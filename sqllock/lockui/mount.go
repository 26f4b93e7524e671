package lockui

import (
	"net/http"
	"net/url"
	"strings"
)

// pathBelow returns the path of r below the mount point: "" for the first page. A
// path that is none of this page's is "/".
//
// Without http.StripPrefix the pattern of the ServeMux is the mount point. Below it
// the escaped path must be the path, so no escape stands for a slash or a dot.
func pathBelow(r *http.Request) string {
	below, ok := cutMount(r.URL.Path, r.Pattern)
	if !ok {
		below = strings.TrimPrefix(r.URL.Path, "/") // which a StripPrefix may have taken too
	}
	if !strings.HasSuffix("/"+strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/"+below) {
		return "/"
	}
	return below
}

// cutMount returns what path has after the mount point, and false if the pattern is
// not the mount point of path. A segment in braces stands for any segment. At the
// end, "{name...}" stands for the rest.
func cutMount(path, pattern string) (below string, ok bool) {
	at := strings.IndexByte(pattern, '/') // after the method and the host
	segments := strings.Split(pattern[at+1:], "/")
	last := len(segments) - 1
	if at < 0 || segments[last] != "" && !strings.HasSuffix(segments[last], "...}") {
		return "", false
	}
	below, ok = strings.CutPrefix(path, "/")
	for _, segment := range segments[:last] {
		first, after, slash := strings.Cut(below, "/")
		if !slash || first != segment && !strings.HasPrefix(segment, "{") {
			return "", false
		}
		below = after
	}
	return below, ok
}

// folderWithoutSlash returns the last segment of the mount point if r is for the mount
// point without its slash, as http.StripPrefix leaves it, and "" otherwise.
func folderWithoutSlash(r *http.Request) string {
	asked, err := url.ParseRequestURI(r.RequestURI)
	if r.URL.Path != "" || err != nil {
		return ""
	}
	path := asked.EscapedPath()
	return path[strings.LastIndexByte(path, '/')+1:]
}

// redirectToFolder sends a request for the folder called name to the address with a
// slash. That is relative, so it holds behind a proxy that shows another prefix.
func redirectToFolder(w http.ResponseWriter, r *http.Request, name string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "There is no such page.", http.StatusNotFound)
		return
	}
	w.Header().Set("Location", "./"+name+"/")
	w.WriteHeader(http.StatusPermanentRedirect)
}
