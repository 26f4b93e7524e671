package browser_test

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

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
	c.traffic(100 * time.Second)
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
		small, err := fewColours(shot)
		if err != nil {
			t.Fatal(err)
		}
		if len(small) > maxPicture {
			t.Errorf("%s has %d bytes, more than %d", s.file, len(small), maxPicture)
		}
		if err := os.WriteFile(filepath.Join(*screenshots, s.file), small, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// traffic has requests come and go, so that the graphs have something to show.
func (c *crowd) traffic(length time.Duration) {
	c.t.Helper()
	dice := rand.New(rand.NewPCG(1, 2)) // the same pictures each time
	var requests sync.WaitGroup
	for begun := time.Now(); time.Since(begun) < length; {
		for range dice.IntN(12) {
			id, work := exportID(100+dice.IntN(20)), time.Duration(100+dice.IntN(3000))*time.Millisecond
			requests.Go(func() {
				lock, err := c.limiter.Acquire(context.Background(), id)
				if err != nil {
					return // the id has a request already
				}
				time.Sleep(work)
				_ = lock.Unlock()
			})
		}
		time.Sleep(time.Duration(100+dice.IntN(900)) * time.Millisecond)
	}
	c.t.Cleanup(requests.Wait)
}

// fewColours returns a PNG with a palette: the most frequent colours of the
// picture. A page has few, besides the shades at the edges of letters.
func fewColours(picture []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	paletted := image.NewPaletted(full.Bounds(), frequentColours(full, 64))
	draw.Draw(paletted, full.Bounds(), full, full.Bounds().Min, draw.Src)
	var b bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err = encoder.Encode(&b, paletted)
	return b.Bytes(), err
}

// frequentColours returns the n most frequent colours of m.
func frequentColours(m image.Image, n int) color.Palette {
	counts := make(map[color.RGBA]int)
	for y := m.Bounds().Min.Y; y < m.Bounds().Max.Y; y++ {
		for x := m.Bounds().Min.X; x < m.Bounds().Max.X; x++ {
			counts[color.RGBAModel.Convert(m.At(x, y)).(color.RGBA)]++
		}
	}
	var palette color.Palette
	for _, c := range byCount(counts)[:min(n, len(counts))] {
		palette = append(palette, c)
	}
	return palette
}

// byCount returns the colours in counts, the most frequent first.
func byCount(counts map[color.RGBA]int) []color.RGBA {
	return slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(counts[b]-counts[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
}
