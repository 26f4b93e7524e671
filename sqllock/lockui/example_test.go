package lockui_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
)

// A page below /debug/locks/ for this machine only.
func ExampleNew() {
	db, done := dbtest.ExampleDatabase()
	defer done()
	locks, err := sqllock.Open(context.Background(), db)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	page := lockui.New(db, lockui.WithSession("main", locks))
	defer page.Close()
	mux := http.NewServeMux()
	mux.Handle("/debug/locks/", page)

	server := httptest.NewServer(mux)
	defer server.Close()
	response, err := http.Get(server.URL + "/debug/locks/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	fmt.Println(response.Status, strings.Contains(string(body), "<h3>main</h3>"))
	// Output: 200 OK true
}

// A page for operators, anywhere, who may also end sessions.
func ExampleWithTerminate() {
	db, done := dbtest.ExampleDatabase()
	defer done()
	signedIn := func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer operator" } // your own check
	page := lockui.New(db, lockui.WithAuthorize(signedIn), lockui.WithTerminate(signedIn), lockui.WithNames())
	defer page.Close()

	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/locks", nil))
	fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	// Output: 403 You may not see this page.
}
