package httptesting

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"testing"
)

// RemovesFormFiles fails the test unless the files of a multipart form are
// removed although the handler has panicked, and middleware around has
// recovered. behind puts the handler behind the middleware under test. prepare
// completes the request.
func RemovesFormFiles(tb testing.TB, behind func(http.Handler) http.Handler, prepare func(*http.Request)) {
	tb.Helper()
	files := make(chan string, 1)
	mux := http.NewServeMux() // idempotency needs a route
	mux.Handle("/", behind(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		files <- uploaded(tb, r)
		panic("broken")
	})))
	s := Serve(tb, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case "broken":
				w.WriteHeader(http.StatusInternalServerError)
			default:
				tb.Errorf("recovered %v, want the value of the panic", p)
			}
		}()
		mux.ServeHTTP(w, r)
	}))
	const form = "--b\r\nContent-Disposition: form-data; name=\"upload\"; filename=\"f\"\r\n\r\ncontent\r\n--b--\r\n"
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, s.URL, strings.NewReader(form))
	if err != nil {
		tb.Fatal(err)
	}
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	prepare(r)
	resp, err := s.Client().Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusInternalServerError {
		tb.Fatalf("status %d, want 500", resp.StatusCode)
	}
	file := Receive(tb, files, "file")
	s.Close() // waits until the server has cleaned up
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		tb.Errorf("the file is still there: %v", err)
		_ = os.Remove(file)
	}
}

// uploaded parses r's form, and returns the name of its temporary file.
func uploaded(tb testing.TB, r *http.Request) string {
	tb.Helper()
	if err := r.ParseMultipartForm(1); err != nil { // a byte of its files stays in memory
		tb.Error(err)
		return ""
	}
	f, err := r.MultipartForm.File["upload"][0].Open()
	if err != nil {
		tb.Error(err)
		return ""
	}
	defer f.Close()
	file, ok := f.(*os.File)
	if !ok {
		tb.Errorf("the form is in a %T", f)
		return ""
	}
	return file.Name()
}
