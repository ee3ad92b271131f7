package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestFilesTooFew: what real compilers and their assemblers say of a file that is not there
// is known for what it may be on a host: a file that was not sent.
func TestFilesTooFew(t *testing.T) {
	for _, c := range []struct{ name, file, text string }{
		{"header", "a.c", "#include \"none.h\"\n"},
		{"directory", "a.c", "#include \"/\"\n"},
		{"incbin", "a.c", "__asm__(\".inc\" \"bin \\\"none.bin\\\"\");\n"},
		{"incbin of a directory", "a.c", "__asm__(\".incbin \\\"/\\\"\");\n"},
		{"assembly", "a.c", "__asm__(\".inc\" \"lude \\\"none.inc\\\"\");\n"},
		{"incbin in assembly", "a.s", ".incbin \"none.bin\"\n"},
		{"include in assembly", "a.s", ".include \"none.inc\"\n"},
		{"incbin in assembly with directives", "a.S", ".incbin \"none.bin\"\n"},
		{"source", "a.c", ""},
		{"import", "a.c", "#import <none.h>\n"},
	} {
		for _, cc := range [][]string{{"gcc"}, {"clang"}, {"clang", "-fno-integrated-as"}} {
			t.Run(c.name+"/"+cc[len(cc)-1], func(t *testing.T) {
				path, err := exec.LookPath(cc[0])
				if err != nil {
					t.Skip("needs " + cc[0])
				}
				dir := t.TempDir()
				if c.text != "" {
					if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				cmd := exec.Command(path, append(cc[1:], "-c", c.file)...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "LC_ALL=C")
				said, err := cmd.CombinedOutput()
				if err == nil {
					t.Skip("this compiler does without the file")
				}
				if !notItsFault(said) {
					t.Errorf("passes for a fault of the source:\n%s", said)
				}
			})
		}
	}
	for _, said := range []string{
		"a.c:1:1: error: unknown type name 'foo'\n",
		"a.c:1:10: error: expected ';' before '}' token\n",
		"a.cc:3:1: error: 'x' was not declared in this scope\n",
	} {
		if notItsFault([]byte(said)) {
			t.Errorf("not taken for a fault of the source: %s", said)
		}
	}
}

// TestExplained: a header that this machine lacks too is no fault of the host, and neither is a bound of the compiler's; anything else
// that ends a compile may be one.
func TestExplained(t *testing.T) {
	lacking := []string{"no/such.h", "none.h"}
	for said, want := range map[string]bool{
		"a.c:1:10: fatal error: none.h: No such file or directory\n    1 | #include \"none.h\"\n      |          ^~~~~~~~\ncompilation terminated.\n": true,
		"cc1: fatal error: none.h: No such file or directory\ncompilation terminated.\n":                                                              true,
		"a.c:1:10: fatal error: 'no/such.h' file not found\n#include <no/such.h>\n         ^~~~~~~~~~~\n1 error generated.\n":                         true,
		"fatal error: too many errors emitted, stopping now [-ferror-limit=]\n":                                                                       true,
		"a.c:9:1: fatal error: too many errors emitted, stopping now [-ferror-limit=]\n":                                                              true,
		"a.c:1:10: fatal error: other.h: No such file or directory\n":                                                                                 false,
		"a.c:1:10: fatal error: 'other.h' file not found\n":                                                                                           false,
		"a.c:1:10: fatal error: none.h: Permission denied\n":                                                                                          false,
		"a.c:1:10: fatal error: none.h: No such file or directory\na.c:2:10: fatal error: other.h: No such file or directory\n":                       false,
		"a.c:1:10: fatal error: none.h: No such file or directory\n    1 | #include \"none.h\" // if not found\n":                                     false,
		"a.c:1:10: fatal error: 'None.h' file not found, did you mean 'none.h'?\n":                                                                    false,
		"x fatal error: none.h: No such file or directory\n":                                                                                          false,
		"cc1: fatal error: cannot open 'x': No such file or directory\n":                                                                              false,
		"gcc: fatal error: Killed signal terminated program cc1\ncompilation terminated.\n":                                                           false,
		"a.c:1:10: fatal error: none.h: No such file or directory\n/tmp/ccx.s: Fatal error: can't write 8 bytes: No space left on device\n":           false,
		"a.cc:1:41: fatal error: template instantiation depth exceeds maximum of 20 (use '-ftemplate-depth=' to increase the maximum)\n":              true,
		"a.cc:1:41: fatal error: recursive template instantiation exceeded maximum depth of 20\n":                                                     true,
	} {
		if got := !notItsFault(unexplained([]byte(said), lacking)); got != want {
			t.Errorf("%q: explained %v, want %v", said, got, want)
		}
	}
	if !notItsFault(unexplained([]byte("a.c:1:10: fatal error: none.h: No such file or directory\n"), nil)) {
		t.Error("nothing is known to be lacking, and yet a missing header is explained")
	}
}
