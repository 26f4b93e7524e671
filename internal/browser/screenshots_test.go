package browser_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/latchkey-go/latchkey/sqllock/lockui"
)

var screenshots = flag.String("screenshots", "", "the directory that TestLongScreenshots writes to (make screenshots)")

// maxPicture bounds the size of a picture, in bytes: they are part of the tree.
const maxPicture = 150 << 10

// TestLongScreenshots takes the pictures in docs/.
func TestLongScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("make screenshots writes the pictures")
	}
	c := newCrowd(t, lockui.WithNames())
	for _, s := range []struct {
		file, path string
		look       look
	}{
		{"page-light.png", "waits", look{Width: 1280, Height: 900}},
		{"page-dark.png", "", look{Width: 1280, Height: 900, Dark: true}},
		{"page-phone.png", "findings", look{Width: 400, Height: 860}},
	} {
		p := c.tab(t, s.look)
		p.open(publicPrefix + s.path)
		p.await("a live page", "document.getElementById('mode').textContent.startsWith('Live')")
		if s.path == "findings" {
			p.await("the cycle", "document.querySelector('main article') !== null")
		}
		ctx, cancel := p.within()
		shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if len(shot) > maxPicture {
			t.Errorf("%s has %d bytes, more than %d", s.file, len(shot), maxPicture)
		}
		if err := os.WriteFile(filepath.Join(*screenshots, s.file), shot, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
