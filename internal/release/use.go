package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// What users do with a release.

// maxZip is the most that the zip of the root module may have. Each user
// downloads it, and so does each build in a fresh container.
const maxZip = 1 << 20

// checkZips prints the sizes of the zips, and checks that of the root.
func (r *release) checkZips(context.Context) error {
	for _, dir := range r.modules {
		info, err := os.Stat(r.made[modulePath(dir)].Zip)
		if err != nil {
			return err
		}
		fmt.Fprintf(r.out, "%9d bytes  zip of %s\n", info.Size(), modulePath(dir))
		if dir == "." && info.Size() > maxZip {
			return fmt.Errorf("the zip of the root module has %d bytes, and at most %d are allowed: docs/go.mod says how a folder stays out of it", info.Size(), maxZip)
		}
	}
	return nil
}

// useModules gets each module with `go get` in a fresh module of its own, and
// builds a program that imports all its packages.
func (r *release) useModules(ctx context.Context) error {
	for _, dir := range r.modules {
		if err := r.use(ctx, dir); err != nil {
			return fmt.Errorf("a program that imports %s does not build: %w", modulePath(dir), err)
		}
	}
	return nil
}

// use builds such a program for the module in dir.
func (r *release) use(ctx context.Context, dir string) error {
	here, err := r.freshModule(ctx, path.Join("imports", dir))
	if err != nil {
		return err
	}
	if err := here.all(ctx, "go get "+modulePath(dir)+"@"+r.version); err != nil {
		return err
	}
	packages, err := here.run(ctx, "go", "list", "-find", "-f", `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`, modulePath(dir)+"/...")
	if err != nil {
		return err
	}
	program, imports := "package main\n\nimport (\n", 0
	for pkg := range strings.FieldsSeq(packages) {
		if !strings.Contains(pkg+"/", "/internal/") {
			program += "\t_ \"" + pkg + "\"\n"
			imports++
		}
	}
	if imports == 0 {
		return nil // a command
	}
	if err := writeProgram(here, program+")\n\nfunc main() {}\n"); err != nil {
		return err
	}
	if err := here.all(ctx, append([]string{"go mod tidy"}, buildCommands...)...); err != nil || dir != "." {
		return err
	}
	modules, err := here.run(ctx, "go", "list", "-m", "all")
	if err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(here.dir, "go.sum"))
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "%9d modules, with latchkey, that a user of all packages of the root gets\n", strings.Count(modules, "\n")-1)
	fmt.Fprintf(r.out, "%9d lines in the go.sum of this user\n", strings.Count(string(sums), "\n"))
	return nil
}

// freshModule returns a new module that requires nothing.
func (r *release) freshModule(ctx context.Context, name string) (place, error) {
	here := r.user.in(filepath.Join(r.dir, "programs", filepath.FromSlash(name)))
	if err := os.MkdirAll(here.dir, 0o755); err != nil {
		return here, err
	}
	return here, here.all(ctx, "go mod init example.com/program")
}

// buildCommands vet and build the program of a module.
var buildCommands = []string{"go vet .", "go build -o program ."}

func writeProgram(here place, program string) error {
	return os.WriteFile(filepath.Join(here.dir, "main.go"), []byte(program), 0o644)
}

// buildPages builds the complete programs that the pages print, and the
// quickstart, which README.md calls the complete program.
func (r *release) buildPages(ctx context.Context) error {
	pages, err := filepath.Glob(filepath.Join(r.clone.dir, "docs", "*.md"))
	if err != nil {
		return err
	}
	count := 0
	for _, page := range append(pages, filepath.Join(r.clone.dir, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		gets := getLine.FindAllString(string(text), -1)
		if filepath.Base(page) != "README.md" {
			gets = []string{"go get " + rootPath + "@" + r.version, "go mod tidy"} // it finds our other modules
		}
		for _, program := range programs(string(text)) {
			count++
			if err := r.buildProgram(ctx, fmt.Sprintf("page%d", count), program, gets); err != nil {
				return fmt.Errorf("a program of %s does not build: %w", filepath.Base(page), err)
			}
		}
	}
	quickstart := "examples/quickstart"
	if err := r.requireVersion(ctx, quickstart); err != nil {
		return fmt.Errorf("%s: %w", quickstart, err)
	}
	if err := r.user.in(filepath.Join(r.clone.dir, quickstart)).all(ctx, "go vet ./...", "go build -o "+os.DevNull+" ."); err != nil {
		return fmt.Errorf("%s does not build: %w", quickstart, err)
	}
	fmt.Fprintf(r.out, "%9d complete programs of pages, and the quickstart, build\n", count)
	return nil
}

// buildProgram builds a program of a page, as it is printed, after commands that
// get the modules.
func (r *release) buildProgram(ctx context.Context, name, program string, gets []string) error {
	here, err := r.freshModule(ctx, name)
	if err != nil {
		return err
	}
	if err := writeProgram(here, program); err != nil {
		return err
	}
	return here.all(ctx, append(gets, buildCommands...)...)
}

// installCommand installs the command, and runs a program with it that holds a
// lock in an SQLite file.
func (r *release) installCommand(ctx context.Context) error {
	here := r.user.in(r.dir)
	if err := here.all(ctx, "go install "+modulePath("sqllock/cmd/latchkey")+"@"+r.version); err != nil {
		return fmt.Errorf("the command cannot be installed: %w", err)
	}
	binaries, err := filepath.Glob(filepath.Join(r.dir, "bin", "latchkey*"))
	if err != nil {
		return err
	}
	if len(binaries) != 1 {
		return fmt.Errorf("go install has made %d binaries of the command", len(binaries))
	}
	info, err := os.Stat(binaries[0])
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "%9d bytes  the command\n", info.Size())
	if err := says(ctx, here, r.version, binaries[0], "--version"); err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		fmt.Fprintln(r.out, "latchkey run was not tried: it needs Linux")
		return nil
	}
	here.env = append(slices.Clip(here.env), "DATABASE_URL=sqlite:"+filepath.Join(r.dir, "locks.db"))
	return says(ctx, here, "held\n", binaries[0], "run", "release:check", "--", "sh", "-c", `test -n "$LATCHKEY_TOKEN" && echo held`)
}

// says runs the installed command, and checks that it prints text.
func says(ctx context.Context, here place, text, binary string, args ...string) error {
	said, err := here.run(ctx, binary, args...)
	if err == nil && !strings.Contains(said, text) {
		err = fmt.Errorf("latchkey %s printed %q, and not %q", args[0], said, text)
	}
	return err
}
