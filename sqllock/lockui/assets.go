package lockui

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"net/http"
	"time"
)

var (
	//go:embed static/style.css
	style []byte
	//go:embed static/live.js
	script []byte
)

var (
	styleAsset  = newAsset("style", ".css", "text/css; charset=utf-8", style)
	scriptAsset = newAsset("live", ".js", "text/javascript; charset=utf-8", script)
	assets      = []*asset{styleAsset, scriptAsset}
)

// An asset is a file that never changes: its address has the hash of its content.
type asset struct {
	path, kind string
	content    []byte
}

func newAsset(name, extension, kind string, content []byte) *asset {
	sum := sha256.Sum256(content)
	return &asset{name + "-" + hex.EncodeToString(sum[:8]) + extension, kind, content}
}

func (a *asset) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.content))
}
