package compile

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestVariablesOfCompilers: of the names in the installed compilers that are variables by their looks, each is known to matter, to go
// along with jobs, or to change nothing that a compile leaves.
func TestVariablesOfCompilers(t *testing.T) {
	if testing.Short() {
		t.Skip("reads compilers")
	}
	known := slices.Concat(gccVariables[:], clangVariables[:], targetVariables[:], deployment[:], travelling[:], []string{
		"COLLECT_GCC", "COLLECT_GCC_OPTIONS", "COLLECT_LTO_WRAPPER", "COLLECT_NO_DEMANGLE", // the driver sets them, or they are for links
		"CLANG_CRASH_DIAGNOSTICS_DIR", "FORCE_CLANG_DIAGNOSTICS_CRASH", "GCC_NOAPPORT", // after a crash
		"CC_LOG_DIAGNOSTICS_FILE", "CC_PRINT_HEADERS_FILE", "CC_PRINT_HEADERS_FILTERING", "CC_PRINT_HEADERS_FORMAT",
		"CC_PRINT_INTERNAL_STAT_FILE", "CC_PRINT_OPTIONS_FILE", "CC_PRINT_PROC_STAT_FILE", // only with those without the last word
		"CLANG_MODULE_CACHE_PATH", // of modules that no host makes
	})
	looks := regexp.MustCompile(`^(?:(?:CC|CCC|CLANG|COLLECT|EXPERIMENTAL|FORCE|GCC|QA|RC|SCE)_[A-Z0-9_]{3,40}|[A-Z0-9_]{2,20}_(?:DEPLOYMENT_TARGET|INCLUDE_PATH|SDK_DIR|DIAGNOSTICS_LOG)|SDKROOT)$`)
	looked := 0
	for _, file := range programsOfCompilers() {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		looked++
		for name := range bytes.SplitSeq(b, []byte{0}) {
			if n := len(name); 6 < n && n < 60 && 'A' <= name[0] && name[0] <= 'Z' && looks.Match(name) && !slices.Contains(known, string(name)) {
				t.Errorf("%s has %s", file, name)
			}
		}
	}
	if looked == 0 {
		need.Skipf(t, need.Tools, "no compiler")
	}
}

// programsOfCompilers returns what reads the environment in the installed compilers: drivers, gcc's cc1, and clang's library.
func programsOfCompilers() (files []string) {
	for _, pattern := range []string{"/usr/bin/gcc-[0-9]*", "/usr/bin/clang-[0-9]*", "/usr/lib/llvm-*/lib/libclang-cpp.so.*"} {
		found, _ := filepath.Glob(pattern) // the pattern is well formed
		for _, file := range found {
			files = append(files, file)
			if !strings.Contains(file, "/gcc-") {
				continue
			}
			if out, err := exec.Command(file, "-print-prog-name=cc1").Output(); err == nil {
				files = append(files, strings.TrimSpace(string(out)))
			}
		}
	}
	return files
}
