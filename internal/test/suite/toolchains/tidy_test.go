package toolchains

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// tidy has clang-tidy look at a source on a host that is sent it, and does so again with each of several configurations, and at
// another one with the flags of a compilation database, which make it call C++ headers by other names: what it prints, its status,
// and the fixes that it writes are those of the plain command.
func (s *site) tidy(name string) {
	s.Helper()
	if _, err := exec.LookPath(name); err != nil {
		need.Skipf(s.T, need.Tools, "no %s", name)
	}
	s.write("t.c", "int some_function(int x) { if (x) return 1; else return 0; }\n")
	s.write("t.cpp", "#include <cassert>\nint some_function(int x) { assert(x); if (x) return 1; else return 0; }\n")
	s.write("compile_commands.json", strings.ReplaceAll(`[{"directory": "DIR", "file": "DIR/t.cpp", "command": "/usr/bin/c++ -O2 -o t.o -c DIR/t.cpp"}]`, "DIR", s.work))
	config := filepath.Join(s.work, ".clang-tidy")
	flags := []string{name, "--export-fixes=t.yaml", "t.c", "--", "cc", "-O2", "-o", "t.o", "-c", "t.c"}
	database := []string{name, "--checks=-*,readability-*,modernize-*", "--header-filter=.*", "--system-headers", "--export-fixes=t.yaml", "t.cpp"}
	for i, text := range []string{"", "Checks: '-*,readability-*'\n", "Checks: '-*,readability-identifier-naming'\nCheckOptions: [{key: readability-identifier-naming.FunctionCase, value: CamelCase}]\n",
		"Checks: '-*,readability-*'\nWarningsAsErrors: '*'\n", "", "Checks: '*'\n"} {
		args := flags
		if i == 5 {
			args = database
		}
		if text == "" {
			_ = os.Remove(config) // it may not be there
		} else {
			s.write(".clang-tidy", text)
		}
		var got ran
		for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			_ = os.Remove(filepath.Join(s.work, "t.yaml"))
			if got = s.run(args...); i > 0 || strings.HasPrefix(got.where, "remote:") || time.Now().After(end) {
				break // it has been sent now
			}
		}
		fixes, _ := os.ReadFile(filepath.Join(s.work, "t.yaml")) // there need not be any
		_ = os.Remove(filepath.Join(s.work, "t.yaml"))
		cmd := exec.CommandContext(s.ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Env = s.work, append(s.Env(), "PWD="+s.work)
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			s.Fatal(err)
		}
		want, _ := os.ReadFile(filepath.Join(s.work, "t.yaml"))
		if !strings.HasPrefix(got.where, "remote:") || got.out != string(out) || got.status != cmd.ProcessState.ExitCode() || !bytes.Equal(fixes, want) {
			s.Errorf("configuration %q: %s, exit %d, want %d\n%s\nwant\n%s\nfixes\n%s\nwant\n%s", text, got.where, got.status, cmd.ProcessState.ExitCode(), got.out, out, fixes, want)
		}
	}
}
