package internal_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	// The programs below are built from these packages. A change in one of them
	// invalidates a cached result of this test.
	_ "github.com/lib/pq"

	_ "github.com/latchkey-go/latchkey/httpmw"
)

// smallProgram is a service with one limited handler. No code calls the method
// NeverCalled. Its text is in the binary only if the linker keeps the method.
const smallProgram = `package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"

	_ "github.com/lib/pq"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

type order struct{}

func (order) NeverCalled() { fmt.Println("the linker kept " + "what nothing calls") }

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	locks, err := sqllock.Open(context.Background(), db)
	if err != nil {
		panic(err)
	}
	limit := httpmw.New(ratelimit.OneAtATime(locks, "export"), httpmw.Header("X-User"))
	fmt.Println(any(order{}), http.ListenAndServe(":8080", limit.Handler(http.NotFoundHandler())))
}
`

// methodByVariable, added to smallProgram, does what the kit must not do.
const methodByVariable = `package main

import (
	"os"
	"reflect"
)

func init() {
	if len(os.Args) > 1 {
		reflect.ValueOf(order{}).MethodByName(os.Args[1]).Call(nil)
	}
}
`

// The kit lets the linker drop the exported methods that a program does not
// call. One call of MethodByName with a variable, anywhere in the program,
// keeps all of them. That is over a tenth of a small program.
func TestLinkerDropsUnusedMethods(t *testing.T) {
	kit, keptByKit := build(t, smallProgram)
	twin, keptByTwin := build(t, smallProgram, methodByVariable)
	if keptByKit {
		t.Errorf("the linker keeps every exported method of a program that uses the kit")
	}
	if !keptByTwin {
		t.Errorf("the linker drops a method that reflection may call: the check above cannot fail")
	}
	if kit > twin/10*9 {
		t.Errorf("%d bytes with the kit; %d bytes if the linker keeps every exported method", kit, twin)
	}
}

// build links a program from these files. It returns the program's size and
// whether the text of NeverCalled is in it.
func build(t *testing.T, files ...string) (size int, kept bool) {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "program")
	args := []string{"build", "-o", binary}
	for i, text := range files {
		name := filepath.Join(dir, string(rune('a'+i))+".go")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	return len(program), bytes.Contains(program, []byte("the linker kept what nothing calls"))
}
