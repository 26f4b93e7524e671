package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A release is a version of all modules for users, which is being checked.
//
// Its folder has a clone of the repository with the tags of the release, and a
// module proxy that the go command has made from these tags alone.
type release struct {
	version string
	tag     bool // it is made, and not only checked
	out     io.Writer
	dir     string            // temporary
	clone   place             // the clone, where only Git runs
	maker   place             // where the go command makes modules from the tags
	user    place             // where a user's go command gets them
	modules []string          // folders of the modules for users, the root first
	made    map[string]module // by their paths
}

// A module is what the go command says when it has made a zip from a tag.
type module struct {
	Path, Zip, Sum, GoModSum string
}

// check makes the release of HEAD, and uses it as a stranger would.
func check(ctx context.Context, version string, tag bool, out io.Writer) (err error) {
	began := time.Now()
	dir, err := os.MkdirTemp("", "latchkey-release-")
	if err != nil {
		return err
	}
	defer func() {
		if removed := os.RemoveAll(dir); err == nil {
			err = removed
		}
	}()
	r := &release{version: version, tag: tag, out: out, dir: dir, made: map[string]module{}}
	for _, step := range []func(context.Context) error{r.cloneHead, r.checkTags, r.makeModules, r.checkZips, r.useModules, r.buildPages, r.installCommand} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("%s cannot be released: %w", version, err)
		}
	}
	fmt.Fprintf(out, "%s can be released (%v)\n", version, time.Since(began).Round(time.Second))
	if !r.tag {
		return nil
	}
	if err := r.writeFiles(ctx); err != nil {
		return err
	}
	return r.publishTags(ctx)
}

// cloneHead clones the repository, without its tags: one that is there already
// must not stand for the one to check.
func (r *release) cloneHead(ctx context.Context) error {
	tree := place{dir: root}
	changes, err := tree.run(ctx, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" && r.tag {
		return errors.New("some files have changes that are not committed")
	}
	if changes != "" {
		fmt.Fprintln(r.out, "changes that are not committed are left out")
	}
	top, err := tree.run(ctx, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	clone := filepath.Join(r.dir, "clone")
	if _, err := tree.run(ctx, "git", "clone", "--quiet", "--no-tags", strings.TrimSpace(top), clone); err != nil {
		return err
	}
	r.clone = place{dir: clone}
	if err := r.setPlaces(ctx); err != nil {
		return err
	}
	r.modules, err = userModules(os.DirFS(clone))
	return err
}

// setPlaces fixes how the go command gets modules. One place makes our modules
// from the clone, which stands in for the repository on the network. The other
// has the result as its first proxy, and as the second what this machine has
// downloaded before.
func (r *release) setPlaces(ctx context.Context) error {
	out, err := r.clone.run(ctx, "go", "env", "GOPROXY", "GOMODCACHE")
	if err != nil {
		return err
	}
	settings := strings.Split(out, "\n")
	makers, users := filepath.Join(r.dir, "maker"), filepath.Join(r.dir, "user")
	cache := func(dir string) string { return "file://" + filepath.ToSlash(filepath.Join(dir, "cache", "download")) }
	common := []string{
		"GOWORK=off", "GOPRIVATE=", "GONOPROXY=", "GONOSUMDB=" + rootPath,
		"GOFLAGS=-modcacherw -trimpath", // the build cache serves the next check, too
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_VALUE_0=https://" + rootPath,
		"GIT_CONFIG_KEY_0=url.file://" + filepath.ToSlash(r.clone.dir) + ".insteadOf",
	}
	r.maker = place{makers, append(slices.Clip(common), "GOPROXY=direct", "GOMODCACHE="+makers)}
	r.user = place{users, append(slices.Clip(common),
		"GOPROXY="+strings.Join([]string{cache(makers), cache(settings[1]), settings[0]}, ","), "GOMODCACHE="+users, "GOBIN="+filepath.Join(r.dir, "bin"))}
	for _, dir := range []string{makers, users} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// makeModules commits and tags as a release does. The root is tagged first:
// the go.sum files of the other modules hold its checksum.
func (r *release) makeModules(ctx context.Context) error {
	mod, err := readMod(ctx, r.clone)
	if err != nil {
		return err
	}
	if _, _, err := releaseEdits(mod, nil, r.version); err != nil {
		return err
	}
	if err := r.clone.all(ctx, "git -c tag.gpgSign=false tag "+tagOf(".", r.version)); err != nil {
		return err
	}
	if err := r.make(ctx, "."); err != nil {
		return err
	}
	for _, dir := range r.modules[1:] {
		if err := r.requireVersion(ctx, dir); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	author := []string{"-c", "user.name=latchkey", "-c", "user.email=release@localhost", "-c", "commit.gpgsign=false"}
	if _, err := r.clone.run(ctx, "git", append(author, "commit", "--quiet", "--all", "--message", "release: the modules require "+r.version)...); err != nil {
		return err
	}
	for _, dir := range r.modules[1:] {
		if err := r.clone.all(ctx, "git -c tag.gpgSign=false tag "+tagOf(dir, r.version)); err != nil {
			return err
		}
		if err := r.make(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// make has the go command make the module in dir from its tag.
func (r *release) make(ctx context.Context, dir string) error {
	out, err := r.maker.run(ctx, "go", "mod", "download", "-json", modulePath(dir)+"@"+r.version)
	if err != nil {
		return fmt.Errorf("%s has no zip: %w", modulePath(dir), err)
	}
	var m module
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		return err
	}
	r.made[m.Path] = m
	return nil
}

// requireVersion makes the go.mod in dir require the version, and go.sum hold
// the checksums. A release changes nothing else in the tree.
func (r *release) requireVersion(ctx context.Context, dir string) error {
	here := r.user.in(filepath.Join(r.clone.dir, dir))
	mod, err := readMod(ctx, here)
	if err != nil {
		return err
	}
	var released []string
	for path := range r.made {
		released = append(released, path)
	}
	args, required, err := releaseEdits(mod, released, r.version)
	if err != nil || len(args) == 0 {
		return err
	}
	if _, err := here.run(ctx, "go", append([]string{"mod", "edit"}, args...)...); err != nil {
		return err
	}
	file := filepath.Join(here.dir, "go.sum")
	sums, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(sums)), "\n")
	for _, path := range required {
		m := r.made[path]
		lines = append(lines, path+" "+r.version+" "+m.Sum, path+" "+r.version+"/go.mod "+m.GoModSum)
	}
	slices.Sort(lines)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	// It fails if go.mod or go.sum lacks something that the module or its tests need.
	_, err = here.run(ctx, "go", "list", "-mod=readonly", "-deps", "-test", "./...")
	return err
}

// readMod reads the go.mod of a folder.
func readMod(ctx context.Context, here place) (mod goMod, err error) {
	out, err := here.run(ctx, "go", "mod", "edit", "-json")
	if err != nil {
		return mod, err
	}
	return mod, json.Unmarshal([]byte(out), &mod)
}

// checkTags rejects a release whose tags the repository has already.
func (r *release) checkTags(ctx context.Context) error {
	if !r.tag {
		return nil
	}
	list := []string{"tag", "--list"}
	for _, dir := range r.modules {
		list = append(list, tagOf(dir, r.version))
	}
	found, err := (place{dir: root}).run(ctx, "git", list...)
	if err == nil && found != "" {
		err = fmt.Errorf("the repository has tags of it already: %s", strings.Join(strings.Fields(found), " "))
	}
	return err
}

// publishTags gives the repository the tags of the clone.
func (r *release) publishTags(ctx context.Context) error {
	fetch := []string{"fetch", "--quiet", "--atomic", "--no-tags", r.clone.dir}
	push := "git push origin"
	for _, dir := range r.modules {
		tag := tagOf(dir, r.version)
		fetch = append(fetch, "refs/tags/"+tag+":refs/tags/"+tag)
		push += " " + tag
	}
	if _, err := (place{dir: root}).run(ctx, "git", fetch...); err != nil {
		return err
	}
	fmt.Fprintln(r.out, "The repository has the tags. Next: "+push)
	return nil
}
