package lockui

import (
	"encoding/json"
	"net/http"
	"strings"
)

// wantsJSON reports whether r asks for JSON: by "?format=json", or by an Accept that
// names application/json and not text/html.
func wantsJSON(r *http.Request) bool {
	if format := r.URL.Query().Get("format"); format != "" {
		return format == "json"
	}
	accept := r.Header.Get("Accept")
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}

// writeJSON writes v. The encoder escapes <, > and &, so that the text is harmless
// even where it is taken for HTML.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Vary", "Accept")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
}
