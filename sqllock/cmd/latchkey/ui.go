package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os/signal"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/latchkey-go/latchkey/sqllock/lockui"
)

func uiCommand() *cli.Command {
	return &cli.Command{
		Name:  "ui",
		Usage: "serve a page about the locks on this machine, until a signal",
		Description: "The page shows who holds and who waits, and what is wrong. It changes nothing.\n" +
			"It answers on loopback alone. From another machine: ssh -L 7070:127.0.0.1:7070 HOST.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:7070", Usage: "`ADDRESS` and port on loopback; port 0 is a free one", Local: true},
			&cli.BoolFlag{Name: "names", Usage: "show what clients have written about themselves: names, holders, applications, addresses", Local: true},
			&cli.StringFlag{Name: "schema", Usage: "`SCHEMA` with the registry's tables; the default is the search_path", Local: true},
			&cli.DurationFlag{Name: "long-held", Usage: "a lock that is held for longer than `DURATION` is a finding", Local: true, HideDefault: true},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			address, err := netip.ParseAddrPort(c.String("listen"))
			if err != nil || !address.Addr().IsLoopback() {
				return exit(exitUsage, "--listen needs an address on loopback, such as 127.0.0.1:7070 or [::1]:0")
			}
			db, err := open(c, false)
			if err != nil {
				return err
			}
			defer db.Close()
			opts := []lockui.Option{lockui.WithLogger(slog.New(slog.DiscardHandler))}
			if c.Bool("names") {
				opts = append(opts, lockui.WithNames())
			}
			if schema := c.String("schema"); schema != "" {
				opts = append(opts, lockui.WithSchema(schema))
			}
			if limit := c.Duration("long-held"); limit > 0 {
				opts = append(opts, lockui.WithLongHeld(limit))
			}
			listener, err := net.Listen("tcp", address.String())
			if err != nil {
				return exit(exitSystem, "--listen: %w", reasonOfListen(err))
			}
			page := lockui.New(db.DB, opts...)
			defer page.Close()
			return serve(ctx, c, listener, page)
		},
	}
}

// serve serves the page until a signal comes. Requests under way get their
// responses.
func serve(ctx context.Context, c *cli.Command, listener net.Listener, page *lockui.Handler) error {
	ctx, stop := signal.NotifyContext(ctx, endingSignals...)
	defer stop()
	server := &http.Server{Handler: inWords(page), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if err := print(c.Root().Writer, "http://%s/\n", listener.Addr()); err != nil {
		return errors.Join(err, server.Close())
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(ending); err != nil {
		return server.Close() // a request took too long
	}
	return nil
}

// inWords returns page with its texts in words for this command. So it has the same
// ones for a state as latchkey doctor.
func inWords(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { page.ServeHTTP(wordWriter{w}, r) })
}

type wordWriter struct{ http.ResponseWriter }

// Write writes what the page has written in one call: a whole view or part of one.
// A response that declares its length is a file, and stays as it is.
func (w wordWriter) Write(text []byte) (int, error) {
	if w.Header().Get("Content-Length") != "" {
		return w.ResponseWriter.Write(text)
	}
	_, err := w.ResponseWriter.Write([]byte(forCommand(string(text))))
	return len(text), err
}

// reasonOfListen returns what the system said, without the address.
func reasonOfListen(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
