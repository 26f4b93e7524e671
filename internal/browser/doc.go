// Package browser tests the page of package lockui in a real Chromium, as an
// operator uses it:
//
//	make browser      # installs Chromium and axe-core if they are missing, and runs the tests
//	make screenshots  # takes the pictures of the page in docs/
//
// The tests serve the page under a prefix behind a reverse proxy. Two more
// processes hold locks, wait, deadlock and die on the same PostgreSQL, each step
// at the command of the test.
//
// Every test also fails if the page opens a dialog, logs an error, violates its
// Content-Security-Policy or requests anything from another origin.
//
// Without Chromium or axe-core the tests are skipped, unless make browser runs
// them.
package browser
