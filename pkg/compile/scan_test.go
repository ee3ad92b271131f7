package compile

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestScanText: what the other machine would fill in or read by itself is found.
func TestScanText(t *testing.T) {
	for text, want := range map[string]string{
		"int x;": "",
		"#define __TIME_T_TYPE long\n#define __TIMESIZE 64\n": "",
		"char *t = __TIME__;":              "time",
		"char *t = __TIMESTAMP__;":         "time",
		"char *d = __DATE__;":              "time",
		"char *b = __BASE_FILE__;":         "base-file",
		`asm(".incbin \"x\"");`:            "incbin",
		"#pragma GCC pch_preprocess \"x\"": "pch",
	} {
		if got := ScanText([]byte(text)); got != want {
			t.Errorf("ScanText(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestOrdinaryHeadersTravel: the C library's own headers hold nothing that would
// keep every source here.
func TestOrdinaryHeadersTravel(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed")
	}
	src := filepath.Join(t.TempDir(), "a.c")
	text := "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <time.h>\n#include <sys/stat.h>\n"
	if err := os.WriteFile(src, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(cc, "-E", "-fdirectives-only", src).Output()
	if err != nil {
		t.Fatal(err)
	}
	if what := ScanText(out); what != "" {
		t.Errorf("a source of ordinary headers would stay here: %s", what)
	}
}
