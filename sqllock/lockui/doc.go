// Package lockui serves a page about the locks of a database. It shows holders,
// waiters and cycles of waits, and the Sessions, limiters and campaigns of this
// process:
//
//	page := lockui.New(db, lockui.WithSession("main", locks)) // db is a *sql.DB, locks a *sqllock.Session
//	defer page.Close()
//	mux.Handle("/locks/", page)
//
// The page answers on loopback only, unless [WithAuthorize] says who may see it.
// It changes nothing, unless [WithTerminate] says who may end a session. It shows
// no name, holder or address without [WithNames].
//
// Every view is HTML that works without JavaScript. With it an open page asks for
// its changing part once a second. The same address returns JSON to a request with
// "Accept: application/json" or "?format=json".
//
// One poller serves all viewers. It looks at the database at most once a second,
// and only while the page is viewed.
package lockui
