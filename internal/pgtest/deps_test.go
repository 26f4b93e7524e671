package pgtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// depsWithout makes a machine without PostgreSQL's programs and without a
// package manager. It returns deps.sh and the PATH of that machine.
func depsWithout(t *testing.T) (script, path string) {
	t.Helper()
	root := t.TempDir()
	path = filepath.Join(root, "bin")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "id"} {
		program, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(program, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("deps.sh")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := strings.NewReplacer("/usr/", root+"/usr/", "/opt/", root+"/opt/", "/Applications/", root+"/Applications/")
	script = filepath.Join(root, "deps.sh")
	if err := os.WriteFile(script, []byte(nowhere.Replace(string(text))), 0o644); err != nil {
		t.Fatal(err)
	}
	return script, path
}

// deps.sh accepts what the benchmarks and the tests accept.
func TestDeps(t *testing.T) {
	script, path := depsWithout(t)
	tests := []struct {
		name string
		args []string
		env  string
		says string
	}{
		{"benchmarks", []string{"bench"}, "", "not found: postgres redis; run:"},
		{"benchmarks with a database", []string{"bench"}, "DATABASE_URL=postgres://db.example/", "not found: postgres redis; run:"},
		{"benchmarks with a server for tests", []string{"bench"}, EnvServer + "=postgres://db.example/", "deps: not found: postgres redis; run:"},
		{"an unknown argument", []string{"banch"}, "", "unknown argument banch"},
		{"tests", nil, "", "not found: postgres pgbouncer redis cc mariadb; run:"},
		{"tests with a database", nil, "DATABASE_URL=postgres://db.example/", "not found: postgres pgbouncer redis cc mariadb; run:"},
		{"tests on a server", nil, EnvServer + "=postgres://db.example/", EnvServer + " is not enough"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			command := exec.Command(filepath.Join(path, "sh"), append([]string{script}, tt.args...)...)
			command.Env = []string{"PATH=" + path, tt.env}
			output, err := command.CombinedOutput()
			if err == nil || !strings.Contains(string(output), tt.says) {
				t.Errorf("%v, %q; want failure, and %q", err, output, tt.says)
			}
			// The runner of the tests goes on after status 3.
			if lacks := strings.Contains(tt.says, "not found"); lacks && command.ProcessState.ExitCode() != 3 {
				t.Errorf("status %d, want 3", command.ProcessState.ExitCode())
			}
			if tt.args != nil && strings.Contains(string(output), EnvServer) {
				t.Errorf("%q is about tests, not about %s", output, tt.name)
			}
		})
	}
}
