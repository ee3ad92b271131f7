package compile

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

func TestScanText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"int x;", ""},
		{"char *s = __DATE__;", "time"},
		{"char *s = __TIME__", "time"},
		{"__TIMESTAMP__", "time"},
		{"f(__BASE_FILE__)", "base-file"},
		{"__TIME_T_TYPE __DATE__X A__DATE__ __FILE__ E__", ""},
		{"#define __DATE__ \"r\"\nchar *s = __DATE__;", ""},
		{"#define __DATE__ \"r\"\nchar *s = __DATE__ __TIME__;", "time"},
		{"char *s = __DATE__;\n#define __DATE__ \"r\"\n", "time"},
		{"#define __DATE__ \"r\"\n#undef __DATE__\n", "time"},
		{`__asm__(".incbin \"f\"");`, "incbin"},
		{`__asm__("x\n\t.incbin" " \"f\"");`, "incbin"},
		{`__asm__(".include \"f\"");`, "incbin"},
		{`__asm__(".include " NAME);`, "incbin"},
		{"x.include = 1; y.include->z; x.incbins = 2; x.included", ""},
		{"#pragma GCC pch_preprocess \"x.gch\"\n", "pch"},
		{"#pragma GCC target(\"avx2\")\n", "pragma"},
		{"#pragma GCC  optimize (\"O3\")\n", "pragma"},
		{"_Pragma(\"GCC target(\\\"avx2\\\")\")\n", "pragma"},
		{"# 1 \"a.h\" 1 3\n#pragma GCC target(\"avx2\")\n", ""},
		{"\n# 1 \"a.h\" 1 3\n#pragma GCC target(\"avx2\")\n", ""},
		{"\n# 1 \"a.h\" 1 3 4\n# define X\n#pragma GCC target(\"avx2\")\n", ""},
		{"\n# 1 \"a.h\" 1 3\n# 1 \"x 3.c\" 2\n#pragma GCC target(\"avx2\")\n", "pragma"},
		{"/* the GCC target of this */ #pragma GCC diagnostic push", ""},
		{"#pragma GCC diagnostic warning \"-Wundef\"\n", "pragma"},
		{"#pragma GCC diagnostic ignored \"-Wundef\"\n", ""},
		{"int a;\n       \n# 6 \"pm.c\"\n#undef LEVEL\nint b;", "pragma"},
		{"int a;\n       \n# 6 \"pm.c\" 2\n#undef LEVEL\nint b;", ""},
		{"int a;\n\n# 6 \"pm.c\"\n#undef LEVEL\nint b;", ""},
		{"#undef LEVEL\n#undef LEVEL\n# 1 \"\"\n#undef X", ""},
		{"#embed \"f\"\n", "embed"},
		{"# embed <f>\n", "embed"},
		{"embedded #embedded x embed", ""},
	} {
		if got := scanText([]byte(c.text), "d/a.c"); got != c.want {
			t.Errorf("scanText(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}

// TestScanTextBaseFile: on the host the text has the base name of the source.
func TestScanTextBaseFile(t *testing.T) {
	text := []byte("char *s = __BASE_FILE__;")
	if got := scanText(text, "a.c"); got != "" {
		t.Errorf("a.c: %q", got)
	}
	if got := scanText(text, "./a.c"); got != "base-file" {
		t.Errorf("./a.c: %q, want base-file", got)
	}
}

func TestHasAsm(t *testing.T) {
	for text, want := range map[string]bool{
		"int plasm; asmx = 1;":                                    false,
		"extern int f (int) __asm__ (\"\" \"g\");":                false,
		"int x asm(\"y\");":                                       false,
		"int f(void) { __asm__(\"nop\"); }":                       true,
		"if (x) asm volatile (\"nop\");":                          true,
		"if (x) __asm__ __volatile__ (\"nop\"); else y();":        true,
		"if (x) y(); else asm(\"nop\" : \"+r\"(x));":              true,
		"asm(\".text\");":                                         true,
		"extern int f (int)\n\t__asm (\"g\"); f(); asm(\"nop\");": true,
	} {
		if got := hasAsm([]byte(text)); got != want {
			t.Errorf("hasAsm(%q) = %v, want %v", text, got, want)
		}
	}
}

// TestScanTextOrdinary: commonly included headers are no reason to stay here.
func TestScanTextOrdinary(t *testing.T) {
	gcc, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++ here")
	}
	for _, headers := range []string{"stdio.h stdlib.h string.h unistd.h time.h sys/time.h math.h pthread.h", "vector string map iostream regex random thread chrono", "immintrin.h"} {
		source := ""
		for _, h := range strings.Fields(headers) {
			source += "#include <" + h + ">\n"
		}
		cmd := exec.Command(gcc, "-E", "-fdirectives-only", "-x", "c++", "-")
		cmd.Stdin = strings.NewReader(source)
		text, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if what := scanText(text, "a.c"); what != "" {
			t.Errorf("%s: %s", headers, what)
		}
	}
}

func BenchmarkScanText(b *testing.B) {
	gcc, err := exec.LookPath("g++")
	if err != nil {
		b.Skip("no g++ here")
	}
	cmd := exec.Command(gcc, "-E", "-fdirectives-only", "-x", "c++", "-")
	cmd.Stdin = strings.NewReader("#include <vector>\n#include <string>\n#include <map>\n#include <regex>\n#include <iostream>\n#include <stdio.h>\n#include <unistd.h>\n")
	text, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	text = bytes.Repeat(text, 10<<20/len(text)+1)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if what := scanText(text, "a.c"); what != "" {
			b.Fatal(what)
		}
	}
}
