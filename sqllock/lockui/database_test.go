package lockui_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
)

// Streams work over HTTP/1 and HTTP/2. On HTTP/1 a stream has its connection alone:
// a write deadline would hold for the response after it.
func TestStreamProtocols(t *testing.T) {
	t.Parallel()
	page := lockui.New(dbtest.Open(t, "pgx", pgtest.Database(t)))
	server := httptest.NewUnstartedServer(page)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() { _ = page.Close(); server.Close() })
	for major, client := range map[int]*http.Client{
		1: {Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}},
		2: server.Client(),
	} {
		response, err := client.Get(server.URL + "/events?view=locks")
		if err != nil {
			t.Fatal(err)
		}
		part := make([]byte, 16)
		if _, err := io.ReadFull(response.Body, part); err != nil || !strings.HasPrefix(string(part), "event: view\ndata") {
			t.Errorf("HTTP/%d: %q, %v", major, part, err)
		}
		if response.ProtoMajor != major || response.Close != (major == 1) || response.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("HTTP/%d, close %t, %v", response.ProtoMajor, response.Close, response.Header)
		}
		_ = response.Body.Close()
		client.CloseIdleConnections()
	}
}

// A server that shuts down ends the streams by the page's Close, as the Handler's
// documentation says.
func TestShutdown(t *testing.T) {
	t.Parallel()
	page := lockui.New(dbtest.Open(t, "pgx", pgtest.Database(t)))
	server := httptest.NewUnstartedServer(page)
	server.Config.RegisterOnShutdown(func() { _ = page.Close() })
	server.Start()
	response, err := http.Get(server.URL + "/events?view=locks")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := server.Config.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := response.Body.Read(make([]byte, 1)); err != nil {
		t.Logf("the stream ended with %v", err)
	}
	server.Close()
}
