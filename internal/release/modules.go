package main

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// rootPath is the module at the root of the tree.
const rootPath = "github.com/latchkey-go/latchkey"

// userModules returns the folders of the modules that users import or install.
// The root, ".", comes first. They are what the Makefile calls USER_MODULES.
func userModules(tree fs.FS) ([]string, error) {
	dirs := []string{"."}
	for _, top := range []string{"grpcmw", "ratelimit", "sqllock"} {
		err := fs.WalkDir(tree, top, func(name string, _ fs.DirEntry, err error) error {
			if path.Base(name) == "go.mod" {
				dirs = append(dirs, path.Dir(name))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

// modulePath returns the path of the module in a folder of the tree.
func modulePath(dir string) string { return path.Join(rootPath, dir) }

// tagOf returns the tag that makes version a version of the module in dir.
func tagOf(dir, version string) string { return path.Join(dir, version) }

// A goMod is what `go mod edit -json` says about a go.mod file.
type goMod struct {
	Require []struct{ Path string }
	Replace []struct{ Old struct{ Path string } }
}

// releaseEdits returns arguments of `go mod edit`. They make mod require version
// of each of our modules, in place of the one in the tree. It also returns the
// modules that mod then requires.
//
// A replacement of another module is an error: it has no effect in the
// programs of users, and `go install` rejects it.
func releaseEdits(mod goMod, released []string, version string) (args, required []string, err error) {
	for _, r := range mod.Replace {
		if !isOurs(r.Old.Path) {
			return nil, nil, fmt.Errorf("its go.mod replaces %s, and users do not get a replacement", r.Old.Path)
		}
		args = append(args, "-dropreplace="+r.Old.Path)
	}
	for _, r := range mod.Require {
		if !isOurs(r.Path) {
			continue
		}
		if !slices.Contains(released, r.Path) {
			return nil, nil, fmt.Errorf("its go.mod requires %s, which has no version yet when this module gets one", r.Path)
		}
		args = append(args, "-require="+r.Path+"@"+version)
		required = append(required, r.Path)
	}
	return args, required, nil
}

// isOurs reports whether a module is of this tree.
func isOurs(path string) bool { return path == rootPath || strings.HasPrefix(path, rootPath+"/") }
