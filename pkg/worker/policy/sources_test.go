package policy

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// sourcesBody is the body of a command as our own wrapper makes it.
func sourcesBody(tc Compiler, args ...string) *job.Body {
	d, _ := compile.DriverOf(tc.Exec, tc.Path)
	p := compile.Parse(args, d, nil)
	return &job.Body{
		Argv0: tc.Exec, Compiler: tc.Path, Args: args, Language: "c", Name: "a.c", Cwd: "/src", Outputs: p.Outputs,
		Files: []unit.File{{Name: "a.c", Len: 3}},
	}
}

// checked is the error of Sources.
func checked(b *job.Body, tc Compiler, text []byte) error {
	_, err := Sources(b, tc, [][]byte{text})
	return err
}

// three is the content of sourcesBody's file.
var three = []byte("x;\n")

var treeTools = []Compiler{
	{Family: "gcc", Major: 12, Exec: "/usr/bin/gcc", Path: "/usr/bin/x86_64-linux-gnu-gcc-12"},
	{Family: "clang", Major: 14, Exec: "/usr/bin/clang", Path: "/usr/lib/llvm-14/bin/clang"},
}

// What chooses programs or loads code is refused, in a tree too.
func TestHostileCommands(t *testing.T) {
	for _, list := range []string{
		"@list", "-B/x", "-B x", "-Bx", "-wrapper sh,-c,id", "-fplugin=x.so", "-fplugin=/x", "-specs=x", "-specs x", "--specs=x",
		"-Xclang -load -Xclang x.so", "-Xclang -plugin", "-Xclang -add-plugin", "-fpass-plugin=x.so", "-mllvm -load=x.so", "-mllvm --load=x.so",
		"-Xclang -mllvm -Xclang -load=x.so", "-Xclang -mllvm -load=x.so", "-Xclang -fdebug-compilation-dir -Xclang -load -Xclang x.so", "-foffload=/x", "-foffload-options=@x",
		"-fmodule-mapper=|id", "--gcc-toolchain=/x", "--sysroot=/x -fno-integrated-as", "-no-integrated-as --sysroot /x", "--config x", "-cc1", "-ccc-gcc-name x", "-Wa,@x", "-iplugindir=/x", "--prefix=/x",
		"b.c", "-", "-E", "-M", "-###", "-v", "--version",
	} {
		for _, tc := range treeTools {
			b := sourcesBody(tc, append([]string{"-c", "a.c"}, strings.Fields(list)...)...)
			wantRefused(t, checked(b, tc, three), list)
		}
	}
}

func TestHonestCommands(t *testing.T) {
	for _, list := range []string{
		"", "-O2 -g -Wall -std=gnu11 -o x/a.o", "-I/usr/local/include -isystem ../inc -include config.h -iquote .", "-DNAME=\"a/b\"",
		"--sysroot=/x -g", "--sysroot x -O2", "-fdiagnostics-color=always", "-fcolor-diagnostics", "-ffile-prefix-map=/src=/x",
		"-Wl,--as-needed -Xlinker --foo -L/x -lm -fuse-ld=gold",
	} {
		for _, tc := range treeTools {
			if strings.Contains(list, "fcolor") && tc.Family == "gcc" {
				continue
			}
			if err := checked(sourcesBody(tc, append([]string{"-c", "a.c"}, strings.Fields(list)...)...), tc, three); err != nil {
				t.Errorf("%s %q: %v", tc.Family, list, err)
			}
		}
	}
}

// TestNamesOfOneCompiler: gcc does the same under any name in its directory, and clang does not.
func TestNamesOfOneCompiler(t *testing.T) {
	for _, tc := range treeTools {
		b := sourcesBody(tc, "-c", "a.c")
		b.Compiler = path.Dir(tc.Path) + "/another-name"
		if err := checked(b, tc, three); (err == nil) != (tc.Family == "gcc") {
			t.Errorf("%s as %s: %v", tc.Path, b.Compiler, err)
		}
	}
}

func TestBodiesThatDoNotFit(t *testing.T) {
	tc := treeTools[0]
	for name, c := range map[string]struct {
		cause  job.Cause
		change func(*job.Body)
	}{
		"a relative directory":          {job.CauseMalformed, func(b *job.Body) { b.Cwd = "src" }},
		"no directory":                  {job.CauseMalformed, func(b *job.Body) { b.Cwd = "" }},
		"a nameless directory":          {job.CauseMalformed, func(b *job.Body) { b.Dirs = []string{""} }},
		"text left over":                {job.CauseMalformed, func(b *job.Body) { b.Files[0].Len = 2 }},
		"text that is missing":          {job.CauseMalformed, func(b *job.Body) { b.Files[0].Len = 4 }},
		"another path":                  {job.CauseToolchain, func(b *job.Body) { b.Compiler = "/opt/bin/gcc-12" }},
		"another output":                {job.CausePolicy, func(b *job.Body) { b.Outputs[0].Name = "b.o" }},
		"an output too many":            {job.CausePolicy, func(b *job.Body) { b.Outputs = append(b.Outputs, unit.Output{Kind: unit.OutputSide, Name: "x"}) }},
		"an output too few":             {job.CausePolicy, func(b *job.Body) { b.Outputs = nil }},
		"a precompiled header":          {job.CausePolicy, func(b *job.Body) { b.Files[0].Name = "inc/x.h.gch" }},
		"one of clang's":                {job.CausePolicy, func(b *job.Body) { b.Files[0].Name = "/inc/x.h.pch" }},
		"one of several":                {job.CausePolicy, func(b *job.Body) { b.Files[0].Name = "x.h.gch/c" }},
		"one of clang's in a directory": {job.CausePolicy, func(b *job.Body) { b.Files[0].Name = "x.h.pch/c" }},
		"a directory of them":           {job.CausePolicy, func(b *job.Body) { b.Dirs = []string{"/inc/x.h.gch"} }},
		"a directory of clang's":        {job.CausePolicy, func(b *job.Body) { b.Dirs = []string{"x.h.pch"} }},
		"the job in such a one":         {job.CausePolicy, func(b *job.Body) { b.Cwd = "/src/x.h.gch" }},
		"a link that leads there":       {job.CausePolicy, func(b *job.Body) { b.Links = []unit.Link{{Name: "/src/l", Target: "/src/x.h.gch"}} }},
		"a link through there":          {job.CausePolicy, func(b *job.Body) { b.Links = []unit.Link{{Name: "/src/l", Target: "x.h.gch/../x.h.pch/."}} }},
		"specs":                         {job.CausePolicy, func(b *job.Body) { b.Files[0].Name = "/usr/lib/gcc/x86_64-linux-gnu/12/specs" }},
		"specs here":                    {job.CausePolicy, func(b *job.Body) { b.Files[0].Name = "specs" }},
		"a link for specs":              {job.CausePolicy, func(b *job.Body) { b.Links = []unit.Link{{Name: "/usr/lib/gcc/specs", Target: "/src/x"}} }},
		"a link to one":                 {job.CausePolicy, func(b *job.Body) { b.Links = []unit.Link{{Name: "/src/x.h.gch", Target: "/src/x"}} }},
		"a name from nowhere":           {job.CausePolicy, func(b *job.Body) { b.Argv0 = "/usr/bin/.." }},
		"a name with blanks":            {job.CausePolicy, func(b *job.Body) { b.Argv0 = "gcc x" }},
		"no name":                       {job.CausePolicy, func(b *job.Body) { b.Argv0 = "" }},
		"a list for a name":             {job.CausePolicy, func(b *job.Body) { b.Argv0 = "@gcc" }},
		"too many words":                {job.CausePolicy, func(b *job.Body) { b.Args = append(b.Args, make([]string, 1<<16)...) }},
		"too long a word":               {job.CausePolicy, func(b *job.Body) { b.Args = append(b.Args, "-D"+strings.Repeat("x", 1<<17)) }},
		"a word in front":               {job.CausePolicy, func(b *job.Body) { b.Front = 1 }},
	} {
		b := sourcesBody(tc, "-c", "a.c")
		c.change(b)
		var r *job.Refusal
		if err := checked(b, tc, three); !errors.As(err, &r) || r.Cause != c.cause {
			t.Errorf("%s: %v, want a refusal for %v", name, err, c.cause)
		}
	}
	b := sourcesBody(treeTools[1], "-c", "a.c")
	for _, name := range []string{"clang++", "clang-cl", "clang-cpp"} {
		b.Argv0 = name
		wantRefused(t, checked(b, treeTools[1], three), name)
	}
	b.Argv0 = "x86_64-linux-gnu-clang-14"
	if err := checked(b, treeTools[1], three); err != nil {
		t.Errorf("the same compiler under another name: %v", err)
	}
}

// TestModuleOutputs: a job that makes a compiled module of clang's writes it under the name that the command gives.
func TestModuleOutputs(t *testing.T) {
	tc := Compiler{Family: "clang", Major: 16, Exec: "/usr/bin/clang++", Path: "/usr/lib/llvm-16/bin/clang"}
	body := func(change func(*job.Body)) *job.Body {
		b := sourcesBody(tc, "-std=c++20", "-x", "c++-module", "-c", "a.c", "-o", "a.o", "-fmodule-output=d/a.pcm")
		change(b)
		return b
	}
	if err := checked(body(func(*job.Body) {}), tc, three); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*job.Body){
		"another name":  func(b *job.Body) { b.Outputs[1].Name = "b.pcm" },
		"none":          func(b *job.Body) { b.Outputs = b.Outputs[:1] },
		"another kind":  func(b *job.Body) { b.Outputs[1].Kind = unit.OutputSide },
		"one too many":  func(b *job.Body) { b.Outputs = append(b.Outputs, b.Outputs[1]) },
		"no object":     func(b *job.Body) { b.Outputs = b.Outputs[1:] },
		"precompile":    func(b *job.Body) { b.Args[3] = "--precompile" },
		"temporary one": func(b *job.Body) { b.Args, b.Outputs = b.Args[:len(b.Args)-1], b.Outputs[:1] },
	} {
		wantRefused(t, checked(body(change), tc, three), name)
	}
}

// TestHeaderUnitOutputs: a job that compiles a header to a module of gcc's writes that, under a name that depends on files, and
// otherwise what the command says.
func TestHeaderUnitOutputs(t *testing.T) {
	tc := Compiler{Family: "gcc", Major: 12, Exec: "/usr/bin/g++", Path: "/usr/bin/x86_64-linux-gnu-g++-12"}
	body := func(change func(*job.Body)) *job.Body {
		b := sourcesBody(tc, "-std=c++20", "-fmodules-ts", "-MD", "-x", "c++-header", "-c", "a.c")
		b.Argv0 = "g++"
		b.Outputs = []unit.Output{{Kind: unit.OutputModule, Name: "x/y.gcm"}, {Kind: unit.OutputDependency, Name: "a.d"}}
		change(b)
		return b
	}
	if err := checked(body(func(*job.Body) {}), tc, three); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*job.Body){
		"an object":     func(b *job.Body) { b.Outputs[0].Kind = unit.OutputObject },
		"none":          func(b *job.Body) { b.Outputs = nil },
		"one too many":  func(b *job.Body) { b.Outputs = append(b.Outputs, b.Outputs[0]) },
		"another file":  func(b *job.Body) { b.Outputs[1].Name = "b.d" },
		"rules only":    func(b *job.Body) { b.Outputs = b.Outputs[1:] },
		"an image":      func(b *job.Body) { b.Args[1] = "-O2" },
		"assembly too":  func(b *job.Body) { b.Args[5] = "-S" },
		"an odd search": func(b *job.Body) { b.Args[1] = "-fmodule-header=other" },
	} {
		wantRefused(t, checked(body(change), tc, three), name)
	}
}

func TestVariablesWithSources(t *testing.T) {
	good := []string{"PWD=/l", "LC_ALL=C.UTF-8", "CPATH=/a:b", "SOURCE_DATE_EPOCH=1", "GCC_COLORS=", "TERM=dumb"}
	if env, err := SourcesVariables(good); err != nil || !slices.Equal(env, good) {
		t.Errorf("variables = %q, %v; want %q", env, err, good)
	}
	for _, e := range []string{"LD_PRELOAD=x", "GCC_EXEC_PREFIX=/", "COMPILER_PATH=/", "PATH=/x", "TMPDIR=/", "DEPENDENCIES_OUTPUT=x", "SUNPRO_DEPENDENCIES=x",
		"CCC_OVERRIDE_OPTIONS=x", "GCONV_PATH=/x", "LOCPATH=/x", "PWD", "", "=", "TZ=UTC", "HOME=/",
		"PWD=x", "PWD=/a\nb", "PWD=", "SOURCE_DATE_EPOCH=x", "SOURCE_DATE_EPOCH=", "LANG=../x", "LANGUAGE=/x", "COLUMNS=x", "TERM=/x", "GCC_COLORS=a\nb", "GCC_COLORS=$(id)",
		"CPATH=/a\x01", "GCC_URLS=/x", "NO_COLOR=\x1b", "GCC_EXTRA_DIAGNOSTIC_OUTPUT=/x", "C_INCLUDE_PATH=" + strings.Repeat("x", 1<<17)} {
		_, err := SourcesVariables([]string{e})
		wantRefused(t, err, e)
	}
}

// TestPlugins: a command may load a plugin that is a part of its toolchain. No file of the job can pass for it.
func TestPlugins(t *testing.T) {
	with := treeTools[0]
	with.Loads = func(name string) bool { return name == "annobin" || name == "/x/plugin/annobin.so" }
	for list, fits := range map[string]bool{
		"-fplugin=annobin": true, "-fplugin=annobin -fplugin-arg-annobin-x=/y": true, "-fplugin=/x/plugin/annobin.so": true,
		"-fplugin=other": false, "-fplugin=annobin -fplugin=other": false, "-fplugin=./annobin.so": false, "-fplugin=/y/annobin.so": false, "-fplugin-arg-annobin-x": false,
		"-iplugindir=/x -fplugin=annobin": false, "-fplugin=annobin -fplugin-arg-annobin-x=y -specs=z": false,
		"-fplugin=annobin -o annobin.so": false,
	} {
		words := append([]string{"-c", "a.c"}, strings.Fields(list)...)
		b := sourcesBody(with, words...)
		if err := checked(b, with, three); (err == nil) != fits {
			t.Errorf("%s: %v", list, err)
		}
		wantRefused(t, checked(sourcesBody(treeTools[0], words...), treeTools[0], three), list)
		for _, file := range []string{"/s/plugin/annobin.so", "annobin.so"} {
			b.Files[0].Name = file
			wantRefused(t, checked(b, with, three), list+", "+file)
		}
		b = sourcesBody(with, words...)
		b.Links = []unit.Link{{Name: "/s/plugin/annobin.so", Target: "x"}}
		wantRefused(t, checked(b, with, three), list+", a link")
	}
}
