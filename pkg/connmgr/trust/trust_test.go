package trust

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/outputs"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestPackedAndBounds: a result outside its buffer, or packed without being asked to, is refused.
func TestPackedAndBounds(t *testing.T) {
	body := &job.Body{Outputs: []unit.Output{{Name: "x.o"}}}
	file := func(off, n uint64) []job.File {
		return []job.File{{Segment: job.Segment{Off: off, Len: n}}}
	}
	for what, c := range map[string]struct {
		r    job.Result
		zstd bool
		bad  bool
	}{
		"good":            {job.Result{Files: file(0, 100)}, false, false},
		"packed, unasked": {job.Result{Packed: 1, Files: file(0, 100)}, false, true},
		"packed":          {job.Result{Packed: 1, Files: file(0, 100)}, true, false},
		"packed, outside": {job.Result{Packed: 101, Files: file(0, 100)}, true, true},
		"outside":         {job.Result{Files: file(1, 100)}, false, true},
		"wraps":           {job.Result{Files: file(1<<64-1, 2)}, false, true},
		"lacks its file":  {job.Result{}, false, true},
		"failed, no file": {job.Result{Exit: 1}, false, false},
	} {
		err := Packed(&c.r, 100, c.zstd)
		if err == nil {
			err = Result(&c.r, body, 100)
		}
		if (err != nil) != c.bad {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestInstalled: a program does not count as installed if other users can write to one directory above it.
func TestInstalled(t *testing.T) {
	uid := uint32(os.Geteuid())
	if !ours("/", uid) {
		t.Skip("the root directory is neither root's nor this user's")
	}
	if !Installed("/bin/sh", uid) {
		t.Error("/bin/sh does not count as installed")
	}
	open := t.TempDir()
	dir := filepath.Join(open, "d")
	file := filepath.Join(dir, "cc")
	if err := errors.Join(os.Chmod(open, 0o777), os.Mkdir(dir, 0o755), os.WriteFile(file, nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, "cc", dir + "/../d/cc", "/nowhere/cc"} {
		if Installed(name, uid) {
			t.Errorf("%s counts as installed", name)
		}
	}
}

// TestTracesDiffer: two hosts that took different times for the same do not distrust each other, nor for what clang says of its
// optimizations.
func TestTracesDiffer(t *testing.T) {
	memX, memY := []byte("objecttrace 1"), []byte("objecttrace 2")
	r := &job.Result{Files: []job.File{{Segment: job.Segment{Len: 6}}, {Index: 1, Segment: job.Segment{Off: 6, Len: 7}}}}
	for _, c := range []struct{ word, name, want string }{
		{"-ftime-trace", "x.json", ""},
		{"-ftime-trace=t", "t", ""},
		{"-ftime-trace=sub/", "sub/x.json", ""},
		{"-ftime-trace", "x.dwo", "x.dwo"},
		{"-ftime-trace=t", "x.json", "x.json"},
		{"-O2", "x.json", "x.json"},
		{"-fsave-optimization-record", "x.opt.yaml", ""},
		{"-fsave-optimization-record=bitstream", "d/x.opt.bitstream", ""},
		{"-fsave-optimization-record", "x.opt-record.json.gz", "x.opt-record.json.gz"}, // gcc's
		{"-foptimization-record-file=r", "r", ""},
		{"-O2", "x.opt.yaml", "x.opt.yaml"},
	} {
		body := &job.Body{Args: []string{"-c", c.word}, Outputs: []unit.Output{{Name: "x.o"}, {Kind: unit.OutputSide, Name: c.name, Optional: true}}}
		if got := Differ(body, r, memX, r, memY); got != c.want {
			t.Errorf("%s, %s: %q differs, want %q", c.word, c.name, got, c.want)
		}
	}
}

// TestEmptySideFiles: clang makes an empty .dwo beside assembly. Beside an object it has an object's head.
func TestEmptySideFiles(t *testing.T) {
	for kind, want := range map[unit.OutputKind]string{unit.OutputAssembly: "", unit.OutputObject: "side file"} {
		object := []byte("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x01\x00\x3e\x00" + strings.Repeat("\x00", 44))
		body := &job.Body{Outputs: []unit.Output{{Kind: kind, Name: "x"}, {Kind: unit.OutputSide, Name: "x.dwo"}}}
		main := object
		if kind == unit.OutputAssembly {
			main = []byte("\t.text\n")
		}
		r := &job.Result{Files: []job.File{{Segment: job.Segment{Len: uint64(len(main))}}, {Index: 1, Segment: job.Segment{Off: uint64(len(main))}}}}
		what, err := Contents(r, main, body, modules.Rules{}, func() (outputs.Object, bool) {
			o, err := outputs.ReadObject(object)
			return o, err == nil
		})
		if want == "" && err != nil || want != "" && (err == nil || what != want) {
			t.Errorf("kind %d: %s, %v; want %q", kind, what, err, want)
		}
	}
}

// TestNamedSideFiles: a side file that the command names is no object, whatever its name.
func TestNamedSideFiles(t *testing.T) {
	for args, want := range map[string]bool{"-fopt-info-all=x.dwo": true, "-aux-info x.dwo": true, "-gsplit-dwarf -o x.o": false} {
		body := &job.Body{Args: strings.Fields(args), Outputs: []unit.Output{{Kind: unit.OutputSide, Name: "x.dwo"}}}
		r := &job.Result{Files: []job.File{{Segment: job.Segment{Len: 4}}}}
		if _, err := Contents(r, []byte("text"), body, modules.Rules{}, func() (outputs.Object, bool) { return outputs.Object{}, false }); (err == nil) != want {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestModuleRules: rules for make may name the command's own modules, and no others.
func TestModuleRules(t *testing.T) {
	body := &job.Body{Args: []string{"-std=c++20", "-fmodules-ts", "-MD", "-c", "x.cc"}, Cwd: "/w", Name: "x.cc", Files: []unit.File{{Name: "x.cc"}, {Name: "gcm.cache/A.gcm"}},
		Outputs: []unit.Output{{Name: "x.o"}, {Kind: unit.OutputDependency, Name: "x.d"}, {Kind: unit.OutputModule, Name: "gcm.cache/X.gcm"}}}
	own := modules.Rules{Module: "X", File: "gcm.cache/X.gcm", Imports: []string{"A"}}
	const (
		head = "x.o gcm.cache/X.gcm: x.cc\n"
		tail = "X.c++m: gcm.cache/X.gcm\n.PHONY: X.c++m\ngcm.cache/X.gcm:| x.o\nCXX_IMPORTS += A.c++m\n"
	)
	for text, want := range map[string]error{
		head + "x.o gcm.cache/X.gcm: A.c++m\n" + tail: nil,
		head + "x.o gcm.cache/X.gcm: B.c++m\n" + tail: outputs.ErrDoubt,
		head + ".PHONY: A.c++m\n":                     outputs.ErrDoubt,
		head + "A.c++m: gcm.cache/A.gcm\n":            outputs.ErrDoubt,
		head + "x.cc: A.c++m\n":                       outputs.ErrDoubt,
		head + "x.o: $(shell evil)\n":                 outputs.ErrForged,
		head + "SHELL += A.c++m\n":                    outputs.ErrDoubt,
		head + "CXX_IMPORTS += $(shell evil)\n":       outputs.ErrForged,
		head + "include A.c++m\n":                     outputs.ErrForged,
		head + tail + "\tevil\n":                      outputs.ErrForged,
	} {
		r := &job.Result{Files: []job.File{{Index: 1, Segment: job.Segment{Len: uint64(len(text))}}}}
		what, err := Contents(r, []byte(text), body, own, nil)
		if !errors.Is(err, want) || (what != "") != (want != nil) {
			t.Errorf("%q: %s %v, want %v", text, what, err, want)
		}
		if _, err := Contents(r, []byte(text), body, modules.Rules{}, nil); err == nil {
			t.Errorf("%q: taken though the command has no modules", text)
		}
	}
}

// TestHalfALine: a compiler that dies while it writes rules for make leaves half a line. That is no fault of the host's.
func TestHalfALine(t *testing.T) {
	body := &job.Body{Args: []string{"-MD", "-c", "x.cc"}, Cwd: "/w", Name: "x.cc", Files: []unit.File{{Name: "x.cc"}},
		Outputs: []unit.Output{{Name: "x.o"}, {Kind: unit.OutputDependency, Name: "x.d"}}}
	for _, c := range []struct {
		text string
		exit uint8
		want error
	}{
		{"x.o: x.cc\n./x.h.c++-module", 1, outputs.ErrDoubt},
		{"x.o: x.cc\n./x.h.c++-module", 0, outputs.ErrForged},
		{"x.o: x.cc\n./x.h.c++-module\n", 1, outputs.ErrForged},
	} {
		r := &job.Result{Exit: c.exit, Files: []job.File{{Index: 1, Segment: job.Segment{Len: uint64(len(c.text))}}}}
		if _, err := Contents(r, []byte(c.text), body, modules.Rules{}, nil); !errors.Is(err, c.want) {
			t.Errorf("%q, exit %d: %v, want %v", c.text, c.exit, err, c.want)
		}
	}
}

// TestImportsInAnotherOrder: gcc writes imports in any order.
func TestImportsInAnotherOrder(t *testing.T) {
	x, y, z := "x.o: x.cc\nCXX_IMPORTS += A.c++m B.c++m\n", "x.o: x.cc\nCXX_IMPORTS += B.c++m A.c++m\n", "x.o: x.cc\nCXX_IMPORTS += B.c++m C.c++m\n"
	r := &job.Result{Files: []job.File{{Segment: job.Segment{Len: uint64(len(x))}}}}
	for kind, want := range map[unit.OutputKind]string{unit.OutputDependency: "", unit.OutputSide: "f"} {
		body := &job.Body{Outputs: []unit.Output{{Kind: kind, Name: "f"}}}
		if got := Differ(body, r, []byte(x), r, []byte(y)); got != want {
			t.Errorf("kind %d: %q differs, want %q", kind, got, want)
		}
		if Differ(body, r, []byte(x), r, []byte(z)) != "f" {
			t.Errorf("kind %d: another import is no difference", kind)
		}
	}
}

// TestModulesDiffer: compiled modules are not compared, as compilers do not always make the same. All else is.
func TestModulesDiffer(t *testing.T) {
	body := &job.Body{Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "a.o"}, {Kind: unit.OutputModule, Name: "a.pcm"}}}
	r := &job.Result{Files: []job.File{{Index: 0, Segment: job.Segment{Len: 1}}, {Index: 1, Segment: job.Segment{Off: 1, Len: 1}}}}
	for y, want := range map[string]string{"om": "", "on": "", "pm": "a.o"} {
		if got := Differ(body, r, []byte("om"), r, []byte(y)); got != want {
			t.Errorf("%s: %q, want %q", y, got, want)
		}
	}
}

// TestOddNames: what a compiler writes about names that rules for make cannot express is no forgery.
func TestOddNames(t *testing.T) {
	const odd = "x\n\ty $(v)\\"
	for what, body := range map[string]*job.Body{
		"output":           {Name: "a.c", Args: []string{"-MD", "-c", "a.c", "-o", odd}, Files: []unit.File{{Name: "a.c"}}},
		"target":           {Name: "a.c", Args: []string{"-MD", "-c", "a.c", "-MT", odd}, Files: []unit.File{{Name: "a.c"}}},
		"source":           {Name: odd, Args: []string{"-MD", "-c", odd}, Files: []unit.File{{Name: odd}}},
		"a header":         {Name: "a.c", Args: []string{"-MD", "-c", "a.c"}, Files: []unit.File{{Name: "a.c"}, {Name: odd}}},
		"none (a forgery)": {Name: "a.c", Args: []string{"-MD", "-c", "a.c"}, Files: []unit.File{{Name: "a.c"}}},
	} {
		body.Outputs = []unit.Output{{Kind: unit.OutputObject, Name: "a.o"}, {Kind: unit.OutputDependency, Name: "a.d"}}
		err := rules([]byte("x\n\ty $(v)\\: a.c\n"), body, modules.Rules{})
		want := outputs.ErrDoubt
		if strings.HasPrefix(what, "none") {
			want = outputs.ErrForged
		}
		if !errors.Is(err, want) || errors.Is(err, outputs.ErrForged) != (want == outputs.ErrForged) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}
