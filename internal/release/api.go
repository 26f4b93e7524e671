package main

import (
	"context"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// apiFile is where a module for users has its exported names, in the form of
// the files $GOROOT/api/*.txt.
const apiFile = "api/v0.txt"

// writeAPI writes the file of each module that has exported names.
func writeAPI(ctx context.Context, out io.Writer) error {
	dirs, err := userModules(os.DirFS(root))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		lines, err := apiOf(ctx, filepath.Join(root, dir))
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		if len(lines) == 0 {
			continue
		}
		file := filepath.Join(root, dir, apiFile)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644)); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %d lines\n", filepath.Join(dir, apiFile), len(lines))
	}
	return nil
}

// apiOf returns the lines for the module in dir: those of all its packages that
// users may import. It reads what the compiler exports.
func apiOf(ctx context.Context, dir string) ([]string, error) {
	here := place{dir, []string{"GOFLAGS=-mod=readonly", "GOWORK=off"}}
	out, err := here.run(ctx, "go", "list", "-f", `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`, "./...")
	if err != nil {
		return nil, err
	}
	packages := slices.DeleteFunc(strings.Fields(out), func(pkg string) bool { return strings.Contains(pkg+"/", "/internal/") })
	if len(packages) == 0 {
		return nil, nil
	}
	out, err = here.run(ctx, "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, packages...)...)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for line := range strings.Lines(out) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[path] = file
	}
	compiled := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("package %s has not been compiled", path)
		}
		return os.Open(exports[path])
	})
	var lines []string
	for _, path := range packages {
		pkg, err := compiled.Import(path)
		if err != nil {
			return nil, err
		}
		lines = append(lines, exported(pkg)...)
	}
	slices.Sort(lines)
	return slices.Compact(lines), nil
}

// exported returns the lines of a package.
func exported(pkg *types.Package) (lines []string) {
	add := func(format string, args ...any) {
		lines = append(lines, "pkg "+pkg.Path()+", "+fmt.Sprintf(format, args...))
	}
	text := func(t types.Type) string {
		return types.TypeString(unnamed(t), func(other *types.Package) string {
			if other == pkg {
				return ""
			}
			return other.Name()
		})
	}
	signature := func(f types.Object) string { return f.Name() + strings.TrimPrefix(text(f.Type()), "func") }
	for _, name := range pkg.Scope().Names() {
		if !token.IsExported(name) {
			continue
		}
		switch object := pkg.Scope().Lookup(name).(type) {
		case *types.Const:
			add("const %s %s = %s", name, text(object.Type()), object.Val())
		case *types.Var:
			add("var %s %s", name, text(object.Type()))
		case *types.Func:
			var params []string
			for p := range object.Signature().TypeParams().TypeParams() {
				params = append(params, p.Obj().Name()+" "+text(p.Constraint()))
			}
			add("func %s", strings.Replace(signature(object), "(", "["+strings.Join(params, ", ")+"](", min(1, len(params))))
		case *types.TypeName:
			if object.IsAlias() {
				add("type %s = %s", name, text(types.Unalias(object.Type())))
				continue
			}
			switch under := object.Type().Underlying().(type) {
			case *types.Struct:
				add("type %s struct", name)
				for f := range under.Fields() {
					if f.Exported() {
						add("type %s struct, %s %s", name, f.Name(), text(f.Type()))
					}
				}
			case *types.Interface:
				add("type %s interface", name)
				for m := range under.Methods() {
					if m.Exported() {
						add("type %s interface, %s", name, signature(m))
					} else {
						add("type %s interface, unexported methods", name) // nobody else can implement it
					}
				}
				continue // these are its methods
			default:
				add("type %s %s", name, text(under))
			}
			ofValue := types.NewMethodSet(object.Type())
			for m := range types.NewMethodSet(types.NewPointer(object.Type())).Methods() {
				receiver := "*" + name
				if ofValue.Lookup(pkg, m.Obj().Name()) != nil {
					receiver = name
				}
				if m.Obj().Exported() {
					add("method (%s) %s", receiver, signature(m.Obj()))
				}
			}
		}
	}
	return lines
}

// unnamed returns a type without the names of parameters and results, which may
// change.
func unnamed(t types.Type) types.Type {
	switch t := t.(type) {
	case *types.Pointer:
		return types.NewPointer(unnamed(t.Elem()))
	case *types.Slice:
		return types.NewSlice(unnamed(t.Elem()))
	case *types.Map:
		return types.NewMap(unnamed(t.Key()), unnamed(t.Elem()))
	case *types.Chan:
		return types.NewChan(t.Dir(), unnamed(t.Elem()))
	case *types.Interface:
		if t.NumMethods() == 0 {
			return t // any, or a constraint
		}
		var methods []*types.Func
		for m := range t.Methods() {
			methods = append(methods, types.NewFunc(token.NoPos, m.Pkg(), m.Name(), unnamed(m.Signature()).(*types.Signature)))
		}
		return types.NewInterfaceType(methods, nil).Complete()
	case *types.Signature:
		return types.NewSignatureType(nil, nil, nil, unnamedTuple(t.Params()), unnamedTuple(t.Results()), t.Variadic())
	}
	return t
}

func unnamedTuple(tuple *types.Tuple) *types.Tuple {
	var all []*types.Var
	for v := range tuple.Variables() {
		all = append(all, types.NewParam(token.NoPos, nil, "", unnamed(v.Type())))
	}
	return types.NewTuple(all...)
}

// apiName is the part of a line that a program names. What follows may change.
var apiName = regexp.MustCompile(`^pkg \S+, (?:const|var|func|method \(\S+\)|type)(?: \w+ (?:struct|interface),)? (\w+)`)

// names returns what lines name: the name, by the text that tells it apart.
func names(lines string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(lines) {
		if m := apiName.FindStringSubmatch(line); m != nil {
			all[m[0]] = m[1]
		}
	}
	return all
}

// gone returns the names that stand in before, and not in now.
func gone(before, now string) map[string]string {
	left := names(before)
	for where := range names(now) {
		delete(left, where)
	}
	return left
}
