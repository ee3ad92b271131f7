package privatetree

import (
	"bufio"
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// libraries lists what ld.so loads for a program: names as in the program's own view. ldd, a script, is asked once for each.
func libraries(t testing.TB, file string) []string {
	t.Helper()
	libs, ok := loads.Load(file)
	if !ok {
		libs, _ = loads.LoadOrStore(file, askLibraries(file))
	}
	return slices.Clone(libs.([]string))
}

var loads sync.Map // []string, by the program's file

func askLibraries(file string) []string {
	out, err := exec.Command("ldd", file).Output()
	if err != nil {
		return nil // a static program
	}
	var libs []string
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		for _, word := range strings.Fields(s.Text()) {
			if strings.HasPrefix(word, "/") {
				libs = append(libs, word)
			}
		}
	}
	return libs
}

// programs lists files, given as names or as words for $PATH, with their libraries.
func programs(t testing.TB, names ...string) []string {
	t.Helper()
	var files []string
	for _, name := range names {
		file, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("needs %s", name)
		}
		files = append(append(files, file), libraries(t, file)...)
	}
	return files
}

// toolchain lists the files that a compiler needs, the driver first, without headers.
func toolchain(t testing.TB, cc string) []string {
	t.Helper()
	files := programs(t, cc)
	for _, prog := range []string{"cc1", "cc1plus", "as"} {
		out, err := exec.Command(cc, "-print-prog-name="+prog).Output()
		if err != nil {
			t.Skipf("%s does not say what it runs: %v", cc, err)
		}
		if file, err := exec.LookPath(strings.TrimSpace(string(out))); err == nil {
			files = append(append(files, file), libraries(t, file)...)
		}
	}
	// clang takes the directory of this one for gcc's, and has headers from there.
	if out, err := exec.Command(cc, "-print-file-name=crtbegin.o").Output(); err == nil && out[0] == '/' {
		files = append(files, strings.TrimSpace(string(out)))
	}
	for i, f := range files {
		files[i], _ = filepath.Abs(f)
	}
	return files
}
