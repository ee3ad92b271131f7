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
