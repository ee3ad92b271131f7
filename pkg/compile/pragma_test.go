package compile

import (
	"os"
	"testing"
)

func TestPoisoned(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/a.h", []byte("#pragma once\nint a;\n  # pragma GCC poison x\n\n"), 0o666))
	const blank = "       \n"
	for text, want := range map[string]bool{
		"":                                   false,
		"int a;":                             false,
		"# 1 \"a.h\"\n" + blank + "int a;\n": false,
		"# 1 \"a.h\"\n" + blank + "int a;\n         \nint b;\n":   true,
		"# 1 \"a.h\" 1\n# 3 \"a.h\"\n" + blank:                    true,
		"# 3 \"a.h\" 1 3 4\n" + blank:                             false, // the system's
		"# 3 \"" + dir + "/a.h\"\n" + blank:                       true,
		"# 4 \"a.h\"\n" + blank:                                   false,
		"# 9 \"a.h\"\n" + blank:                                   true, // it is not what was read
		"# 1 \"gone.h\"\n" + blank:                                true,
		"# 1 \"a\\\".h\"\n" + blank:                               true,
		"\n" + blank:                                              true, // of no file
		"# 1 \"a.h\"\n\n        int indented;\n        return;\n": false,
	} {
		if got := poisoned([]byte(text), dir); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestSwallowed(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/a.h", []byte("#pragma once\nint message;\n"), 0o666))
	must(t, os.WriteFile(dir+"/m.h", []byte("int m;\n # pragma  message \"m\"\n"), 0o666))
	must(t, os.WriteFile(dir+"/p.h", []byte("#define P _Pragma(\"message (\\\"m\\\")\")\n"), 0o666))
	must(t, os.WriteFile(dir+"/r.h", []byte("#pragma redefine_extname a b\n"), 0o666))
	for text, want := range map[string]bool{
		"": false,
		"# 0 \"a.h\"\n# 1 \"gone.h\" 1\n# 1 \"<built-in>\"\n# x\n": false,
		"# 0 \"m.h\"":                         true,
		"int a;\n# 7 \"p.h\" 2\n":             true,
		"# 1 \"a.h\"\n# 1 \"r.h\" 1\n":        true,
		"# 1 \"a.h\"\n# 1 \"r.h\" 1 3\n":      false, // the system's
		"# 1 \"" + dir + "/r.h\" 1\nint r;\n": true,
	} {
		if got := swallowed([]byte(text), dir); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// FuzzPragmas: no text makes the readers of markers panic.
func FuzzPragmas(f *testing.F) {
	f.Add([]byte("# 1 \"a.h\" 1 3\n       \n#undef X\n#pragma GCC target(\"x\")\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		scanText(text, "a.c")
		poisoned(text, dir)
		swallowed(text, dir)
		hasAsm(text)
	})
}
