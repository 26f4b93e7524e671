package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const timeout = 30 * time.Second

// A serving is the program with -serve.
type serving struct {
	command     *exec.Cmd
	databaseURL string
	tempDir     string
	stderr      bytes.Buffer
	http, grpc  []string // of the instances: URLs and addresses
	pages       []string // URLs of their pages about the locks
	printed     string   // all that it prints to try
	ended       chan error
}

// startServing starts the program with -serve and reads what to try from it.
func startServing(t *testing.T, databaseURL string) *serving {
	t.Helper()
	s := &serving{databaseURL: databaseURL, ended: make(chan error, 1)}
	s.command, s.tempDir = command(t, databaseURL, "-serve", "-export", "2s")
	s.command.Stderr = &s.stderr // which the instances inherit: Wait waits for their end, too
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.command.Process.Kill() })
	curl := regexp.MustCompile(`^ *curl .* (http://\S+)$`)
	grpcurl := regexp.MustCompile(`^ *grpcurl .* (\S+) latchkey\.quickstart\.v1\.ExportService/Export$`)
	page := regexp.MustCompile(`^ *(http://\S+/locks/)$`)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.Contains(lines.Text(), "Ctrl-C") {
		s.printed += lines.Text() + "\n"
		if found := curl.FindStringSubmatch(lines.Text()); found != nil {
			s.http = append(s.http, found[1])
		}
		if found := grpcurl.FindStringSubmatch(lines.Text()); found != nil {
			s.grpc = append(s.grpc, found[1])
		}
		if found := page.FindStringSubmatch(lines.Text()); found != nil {
			s.pages = append(s.pages, found[1])
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdout)
		s.ended <- s.command.Wait()
	}()
	if len(s.http) != 2 || len(s.grpc) != 2 || len(s.pages) != 2 {
		t.Fatalf("it prints %v, %v and %v to try, want two of each", s.http, s.grpc, s.pages)
	}
	return s
}

// wait waits for the end of the program and its instances, and checks that
// nothing is left of them.
func (s *serving) wait(t *testing.T) error {
	t.Helper()
	var err error
	select {
	case err = <-s.ended:
	case <-time.After(timeout):
		t.Fatal("it does not end")
	}
	for _, url := range s.http {
		address := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/exports")
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			t.Errorf("something still listens where an instance did")
		}
	}
	if s.databaseURL != "" {
		nothingHeld(t, s.databaseURL)
	}
	leavesNothing(t, s.tempDir)
	return err
}

func TestServe(t *testing.T) {
	for _, place := range append([]place{throwaway}, given...) {
		t.Run(place.name, func(t *testing.T) {
			for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
				t.Run(signal.String(), func(t *testing.T) {
					t.Parallel()
					s := startServing(t, place.url(t))
					if !strings.Contains(s.printed, "An export takes 2s.") {
						t.Errorf("it does not say how long an export takes:\n%s", s.printed)
					}
					file := regexp.MustCompile(`latchkey ps --db sqlite:(\S+)\n`).FindStringSubmatch(s.printed)
					if throwaway := s.databaseURL == ""; throwaway != (file != nil) {
						t.Errorf("it names the file %q of the locks:\n%s", file, s.printed)
					} else if throwaway {
						if _, err := os.Stat(file[1]); err != nil {
							t.Error(err)
						}
					}
					askAll(t, s)
					viewer := openPage(t, s.pages[0])
					defer viewer.Close()
					if err := s.command.Process.Signal(signal); err != nil {
						t.Fatal(err)
					}
					if err := s.wait(t); err != nil || s.stderr.Len() > 0 {
						t.Errorf("it ends with %v\n%s", err, &s.stderr)
					}
					if _, err := io.Copy(io.Discard, viewer); err != nil {
						t.Errorf("the page was cut off, not ended: %v", err)
					}
				})
			}
		})
	}
}

// openPage loads a page and returns its stream of events, which the page keeps
// open.
func openPage(t *testing.T, url string) io.ReadCloser {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	var events io.ReadCloser
	for _, address := range []string{url, url + "events"} {
		if events != nil {
			events.Close()
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if events = response.Body; response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", address, response.Status)
		}
	}
	return events
}

// However the parent dies, the instances do not outlive it.
func TestParentKilled(t *testing.T) {
	for _, place := range given {
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			s := startServing(t, place.url(t))
			if err := s.command.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := s.wait(t); err == nil {
				t.Error("a killed process has ended well")
			}
		})
	}
}
