package inputs

import (
	"errors"
	"os"
	"testing"
)

// TestDoubts: what cannot be known for certain is told, and why.
func TestDoubts(t *testing.T) {
	c := newCompiler(t, "gcc", "c")
	for _, x := range []struct {
		text, want string
		change     func(q *Query, dir string)
	}{
		{text: "int x;\n"},
		{text: "#define H <stdio.h>\n#include H\n", want: DoubtComputed},
		{text: "#inc\\\nlude <stdio.h>\n", want: DoubtSpelling},
		{text: "char *s = __TIME__;\n", want: DoubtClock},
		{text: "char *s = __TIME__;\n", change: func(q *Query, _ string) { q.Clock[0] = true }},
		{text: "#define HAS(x) __has_include(x)\n", want: DoubtHasInclude},
		{text: "#include \"/proc/version\"\n", want: DoubtFileSystem}, // as a network file system's, its times tell nothing
		{text: "#include \"/dev/null\"\n", want: DoubtFile},
		{text: "#include \"h.h\"\n", want: DoubtPCH, change: func(_ *Query, dir string) { put(t, dir+"/h.h.gch", "") }},
		{text: "int x;\n", want: DoubtSearch, change: func(q *Query, dir string) { q.Missing = []string{dir} }},
	} {
		dir := t.TempDir()
		put(t, dir+"/x.c", x.text)
		put(t, dir+"/h.h", "")
		q := c.query(dir, "x.c")
		if x.change != nil {
			x.change(q, dir)
		}
		_, err := New(Options{}).Resolve(q)
		var d *Doubt
		if errors.As(err, &d); x.want == "" && err != nil || x.want != "" && (d == nil || d.Why != x.want) {
			t.Errorf("%q: %v, want %q", x.text, err, x.want)
		}
	}
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}
