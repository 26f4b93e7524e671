package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sbomTool writes lists of components in the format CycloneDX.
const sbomTool = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"

// systems are those for which a release has the command as a binary. On the
// others `latchkey run` does not work.
var systems = []string{"linux/amd64", "linux/arm64"}

// writeFiles writes what a release on GitHub has besides the tags: the command,
// a list of the components of each binary and module, and the checksums.
func (r *release) writeFiles(ctx context.Context) error {
	dir, err := filepath.Abs(filepath.Join(root, "bin", r.version))
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, system := range systems {
		if err := r.writeBinary(ctx, dir, system); err != nil {
			return fmt.Errorf("the command for %s: %w", system, err)
		}
	}
	var sums []string
	for _, module := range r.modules {
		m := r.made[modulePath(module)]
		sums = append(sums, m.Path+" "+r.version+" "+m.Sum, m.Path+" "+r.version+"/go.mod "+m.GoModSum)
		name := strings.ReplaceAll(strings.TrimPrefix(m.Path, "github.com/latchkey-go/"), "/", "-") + ".cdx.json"
		here := r.user.in(filepath.Join(r.clone.dir, module))
		if _, err := here.run(ctx, "go", "run", sbomTool, "mod", "-json", "-output", filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), []byte(strings.Join(sums, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "bin/%s has the files of the release\n", r.version)
	return writeChecksums(dir)
}

// writeBinary writes the command for a system, and the list of its components.
// The same version of Go makes the same file from the tag, with -trimpath and
// CGO_ENABLED=0.
func (r *release) writeBinary(ctx context.Context, dir, system string) error {
	goos, goarch, _ := strings.Cut(system, "/")
	here := r.user.in(r.dir)
	gopath := filepath.Join(r.dir, goarch)
	here.env = append(slices.Clip(here.env), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0", "GOBIN=", "GOPATH="+gopath)
	if err := here.all(ctx, "go install "+modulePath("sqllock/cmd/latchkey")+"@"+r.version); err != nil {
		return err
	}
	built, err := filepath.Glob(filepath.Join(gopath, "bin", "latchkey"))
	if len(built) == 0 {
		built, err = filepath.Glob(filepath.Join(gopath, "bin", "*", "latchkey")) // of another system
	}
	if err != nil || len(built) != 1 {
		return fmt.Errorf("go install has made %d binaries (%v)", len(built), err)
	}
	name := filepath.Join(dir, "latchkey-"+goos+"-"+goarch)
	if err := os.Rename(built[0], name); err != nil {
		return err
	}
	_, err = r.user.in(r.dir).run(ctx, "go", "run", sbomTool, "bin", "-json", "-version", r.version, "-output", name+".cdx.json", name)
	return err
}

// writeChecksums writes SHA256SUMS, for `sha256sum -c`.
func writeChecksums(dir string) error {
	files, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), f.Name())
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
