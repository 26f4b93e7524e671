package browser_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// incidents are what a page did that it must never do: open a dialog or a window,
// log an error, violate its policy, or request something from another origin.
type incidents struct {
	origin  string
	dismiss func() // closes a dialog, without which the page would stand still

	mu   sync.Mutex // protects list; note is called by the tab
	list []string
}

// call runs a command of the DevTools protocol on the tab.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	ctx, cancel := p.within()
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		p.t.Fatal(err)
	}
	return result
}

// observe makes the browser report what note looks at.
func (p *tab) observe() {
	p.t.Helper()
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	call(p, audits.Enable, cdp.Empty{})
	call(p, page.Enable, page.EnableParams{})
}

// note adds what an event says. It runs on the goroutine that reads the events.
func (in *incidents) note(event any) {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if !in.isOurs(e.Request.URL) {
			in.add("request to another origin: %s", e.Request.URL)
		}
	case *network.EventWebSocketCreated:
		in.add("web socket: %s", e.URL)
	case *page.EventJavascriptDialogOpening:
		in.add("dialog: %s", e.Message)
		go in.dismiss() // note itself must not run a command
	case *page.EventWindowOpen:
		in.add("window: %s", e.URL)
	case *target.EventTargetCreated:
		if e.TargetInfo.OpenerID != "" {
			in.add("window: %s", e.TargetInfo.URL)
		}
	case *runtime.EventExceptionThrown:
		in.add("exception: %s", thrown(e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			in.add("console: %s", consoleText(e.Args))
		}
	case *log.EventEntryAdded:
		// A status of 400 and above is an entry of source network. Tests of such
		// responses look at the status itself.
		if e.Entry.Source != log.EntrySourceNetwork && (e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning) {
			in.add("log: %s: %s", e.Entry.Source, e.Entry.Text)
		}
	case *audits.EventIssueAdded:
		if d := e.Issue.Details.ContentSecurityPolicyIssueDetails; d != nil {
			in.add("policy violated: %s by %s", d.ViolatedDirective, d.BlockedURL)
		}
	}
}

func (in *incidents) add(format string, args ...any) {
	in.list = append(in.list, fmt.Sprintf(format, args...))
}

// isOurs reports whether url needs no other server than the page's own.
func (in *incidents) isOurs(url string) bool {
	return strings.HasPrefix(url, in.origin+"/") || strings.HasPrefix(url, "data:") || strings.HasPrefix(url, "about:") || strings.HasPrefix(url, "blob:")
}

func consoleText(args []*runtime.RemoteObject) string {
	var words []string
	for _, a := range args {
		words = append(words, strings.Trim(string(a.Value), `"`)+a.Description)
	}
	return strings.Join(words, " ")
}

func thrown(d *runtime.ExceptionDetails) string {
	if d.Exception != nil {
		return d.Text + " " + d.Exception.Description
	}
	return d.Text
}

// take returns the incidents so far and forgets them.
func (in *incidents) take() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	list := in.list
	in.list = nil
	return list
}

// report fails t for each incident that no test has taken.
func (in *incidents) report(t *testing.T) {
	for _, i := range in.take() {
		t.Errorf("the page misbehaves: %s", i)
	}
}
