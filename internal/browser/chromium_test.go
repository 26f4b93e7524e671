package browser_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// chromium is the one browser of this test binary. The first tab starts it.
var chromium struct {
	mu    sync.Mutex // held while it is started or closed, so that it happens once
	ctx   context.Context
	close func() error
}

// strangeHost is a name under which the browser finds this machine, as an
// attacker's name server would say (DNS rebinding).
const strangeHost = "attacker.example"

// startChromium returns the context of the browser. It has a profile of its own,
// which is removed with it, and reaches nothing but this machine.
func startChromium(path string) (context.Context, error) {
	chromium.mu.Lock()
	defer chromium.mu.Unlock()
	if chromium.ctx != nil {
		return chromium.ctx, nil
	}
	// Root needs --no-sandbox, which chromedp adds by itself.
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.DisableGPU,
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("renderer-process-limit", "2"),
		chromedp.Flag("host-resolver-rules", "MAP "+strangeHost+" 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		cancel()
		stop()
		return nil, err
	}
	chromium.ctx = ctx
	chromium.close = func() error {
		within, cancelWithin := context.WithTimeout(ctx, 20*time.Second)
		defer cancelWithin()
		err := chromedp.Cancel(within)
		cancel()
		stop() // waits for the process, and removes the profile
		return err
	}
	return ctx, nil
}

func closeChromium() error {
	chromium.mu.Lock()
	defer chromium.mu.Unlock()
	if chromium.close == nil {
		return nil
	}
	return chromium.close()
}

// A look says how a tab shows the page.
type look struct {
	Width, Height int64 // 0: 1280, 800
	Dark          bool
	NoScript      bool
}

// A tab is one tab of the browser, with cookies and a cache of its own.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string // the only origin that the page may request anything from
	*incidents
}

// patience bounds each wait for the browser. It is generous, as the machine may
// be slow.
const patience = 30 * time.Second

// newTab opens a tab for pages of origin. The test fails if the page misbehaves
// until the tab is closed, which happens at the end of the test.
func newTab(t *testing.T, origin string, l look) *tab {
	t.Helper()
	parent, err := startChromium(needPrograms(t).chromium)
	if err != nil {
		t.Fatal(err)
	}
	p := &tab{t: t, origin: origin, incidents: &incidents{origin: origin}}
	ctx, cancel := chromedp.NewContext(parent, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.note))
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		p.report(t)
	})
	p.ctx = ctx
	p.dismiss = func() {
		_, _ = chromedp.Call(ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{}) // an error says that the tab is closed
	}
	if err := chromedp.Do(ctx); err != nil { // the tab lives as long as the first context that it is given
		t.Fatal(err)
	}
	if l.Width == 0 {
		l.Width, l.Height = 1280, 800
	}
	theme := &emulation.MediaFeature{Name: "prefers-color-scheme", Value: "light"}
	if l.Dark {
		theme.Value = "dark"
	}
	p.do(chromedp.EmulateViewport(l.Width, l.Height))
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{theme}})
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: l.NoScript})
	p.observe()
	return p
}

// within returns the context of the tab, bounded by patience.
func (p *tab) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.ctx, patience)
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := p.within()
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// open loads the page at path and returns the status of the response.
func (p *tab) open(path string) int64 {
	p.t.Helper()
	ctx, cancel := p.within()
	defer cancel()
	response, err := chromedp.Run(ctx, chromedp.NavigateResponse(p.origin+path))
	if err != nil {
		p.t.Fatalf("open %s: %v", path, err)
	}
	return response.Status
}

// evaluate returns the value of a JavaScript expression. It works with scripts
// switched off, too.
func evaluate[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := p.within()
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", shortened(expression), err)
	}
	return value
}

// await polls expression until it is true, and returns the time of that. It polls
// from outside the page, so it works with scripts switched off, too.
func (p *tab) await(what, expression string) time.Time {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		ctx, cancel := p.within()
		shown, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		cancel()
		if err == nil && shown { // an error: another page is being loaded
			return time.Now()
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: not on the page within %v, which shows:\n%s", what, patience, p.text())
		}
	}
}

// text returns what a reader of the page sees.
func (p *tab) text() string { return evaluate[string](p, "document.body.innerText") }

// press types keys, such as kb.Tab, at the element that has the focus.
func (p *tab) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

func shortened(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
