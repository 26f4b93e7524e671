// Command release does for a release what a person would get wrong. The
// Makefile's targets release-check, release-tags and api are these calls, in
// the folder of this program:
//
//	go run . check v0.1.0
//	go run . -tag check v0.1.0
//	go run . api
//
// check makes the release of HEAD in a temporary clone, and then uses it as a
// stranger would. It changes nothing in the tree. With -tag it also gives the
// repository the tags of the release that it has checked, and writes the files
// of the release into bin.
//
// api writes the exported names of each module into its file api/v0.txt.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
)

// root is the root of the tree.
const root = "../.."

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if f := (*failure)(nil); errors.As(err, &f) {
		fmt.Println(f.output)
	}
	if err != nil {
		fmt.Println("release:", err)
		os.Exit(1)
	}
}

// validVersion is a version of modules whose paths do not end in /v2 or higher.
var validVersion = regexp.MustCompile(`^v[01]\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// run carries out the command in args.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(out)
	tag := flags.Bool("tag", false, "give the repository the tags that were checked, and write the files of the release")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch args := flags.Args(); {
	case len(args) == 2 && args[0] == "check":
		if !validVersion.MatchString(args[1]) {
			return fmt.Errorf("%q is no version such as v0.1.0", args[1])
		}
		return check(ctx, args[1], *tag, out)
	case len(args) == 1 && args[0] == "api":
		return writeAPI(ctx, out)
	default:
		return errors.New("use check VERSION, or api, not " + strings.Join(args, " "))
	}
}
