package httpmw_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Flushed bytes arrive while the handler runs.
func TestFlush(t *testing.T) {
	t.Parallel()
	for _, p := range httptesting.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			leave := make(chan struct{})
			s := p.Serve(t, limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "begun ")
				w.(http.Flusher).Flush()
				httptesting.Stay(t.Context(), leave)
				_, _ = io.WriteString(w, "ended")
			})))
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(user, "ada")
			resp, err := s.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			first := make([]byte, len("begun "))
			if _, err := io.ReadFull(resp.Body, first); err != nil {
				t.Fatal(err)
			}
			get(t, s).Want(t, http.StatusTooManyRequests) // it still runs
			close(leave)
			if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "ended" {
				t.Errorf("rest %q, %v; want ended", rest, err)
			}
			get(t, s).Want(t, http.StatusOK)
		})
	}
}

// The lock of a hijacked connection is held until the handler returns.
func TestHijack(t *testing.T) {
	t.Parallel()
	m, back := ended(sqllock.NewMemory())
	s := httptesting.Serve(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(conn, line)
	})))
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: echo\r\nConnection: Upgrade\r\n"+user+": ada\r\n\r\n")
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d, want 101", resp.StatusCode)
	}
	get(t, s).Want(t, http.StatusTooManyRequests)

	_, _ = io.WriteString(conn, "hello\n")
	if line, err := from.ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("echo %q, %v; want hello", line, err)
	}
	httptesting.Receive(t, back, "lock of the hijacked connection")
	eventually(t, s, http.StatusOK)
}

// A file is sent by the server's ReadFrom, which lets the kernel copy it.
func TestFile(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range httptesting.Protocols {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			s := p.Serve(t, limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, ok := w.(io.ReaderFrom); !ok && p.Major == 1 {
					t.Error("no ReadFrom")
				}
				http.ServeFile(w, r, name)
			})))
			if got := get(t, s); got.Text != string(content) {
				t.Errorf("%d bytes came, want the %d of the file", len(got.Text), len(content))
			}
		})
	}
}

// Trailers and a body in both directions at once work, as without the
// Middleware.
func TestStreamsBothWays(t *testing.T) {
	t.Parallel()
	s := httptesting.Protocols[1].Serve(t, limited(sqllock.NewMemory()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Count")
		lines := bufio.NewScanner(r.Body)
		n := "0"
		for lines.Scan() {
			n = lines.Text()
			_, _ = io.WriteString(w, "echo "+n+"\n")
			w.(http.Flusher).Flush()
		}
		w.Header().Set("X-Count", n)
	})))
	body, send := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(user, "ada")
	go func() { _, _ = io.WriteString(send, "1\n") }()
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for _, n := range []string{"1", "2", "3"} {
		if got, err := lines.ReadString('\n'); err != nil || got != "echo "+n+"\n" {
			t.Fatalf("got %q, %v; want echo %s", got, err, n)
		}
		if n < "3" {
			_, _ = io.WriteString(send, string(n[0]+1)+"\n")
		}
	}
	_ = send.Close()
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Fatal(err)
	}
	if got := resp.Trailer.Get("X-Count"); got != "3" {
		t.Errorf("trailer %q, want 3", got)
	}
}
