package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// codebase is real C or C++ code that is available wherever Go is: modules that carry the sources of the
// library that they wrap.
type codebase struct {
	name    string
	module  string // path@version
	sub     string // directory of the sources, in the module
	cc      string // compiler
	flags   []string
	globs   []string                     // sources
	brief   []string                     // the sources that a short demo compiles, without linking them; nil: all
	extra   func(source string) []string // further flags of one source
	links   []link
	shown   string                                 // what check proves
	prepare func(dir string) error                 // makes what the check needs besides the module's sources
	check   func(ctx context.Context, p ctl) error // runs what was linked
}

// link links one program from the objects of all sources, with exceptions.
type link struct {
	program string
	without []string
	libs    []string
}

// ctl is the context of a check.
type ctl struct {
	module string // directory of the module
	root   string // directory of the sources
	out    string // directory of the programs, and for files of the check
}

// sources lists the translation units, relative to root or absolute.
func (c codebase) sources(root, own string) ([]string, error) {
	if c.brief != nil {
		return c.brief, nil
	}
	var all []string
	for _, glob := range c.globs {
		base := root
		if rest, ok := strings.CutPrefix(glob, "OWN/"); ok {
			base, glob = own, rest
		}
		found, err := filepath.Glob(filepath.Join(base, glob))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("no sources match %s", glob)
		}
		for _, f := range found {
			if base == root {
				if f, err = filepath.Rel(root, f); err != nil {
					return nil, err
				}
			}
			all = append(all, f)
		}
	}
	return all, nil
}

var codebases = []codebase{
	{
		name: "libwebp", module: "github.com/chai2010/webp@v1.4.0", sub: "internal/libwebp-1.4.0", cc: "gcc",
		flags: []string{"-O2", "-I.", "-Isrc", "-DWEBP_USE_THREAD", "-DWEBP_HAVE_SSE41"},
		globs: []string{"src/*/*.c", "sharpyuv/*.c", "imageio/*.c", "examples/dwebp.c", "examples/example_util.c"},
		extra: func(source string) []string {
			if runtime.GOARCH == "amd64" && strings.HasSuffix(source, "_sse41.c") {
				return []string{"-msse4.1"}
			}
			return nil
		},
		links: []link{{program: "dwebp", libs: []string{"-lm", "-pthread"}}},
		shown: "dwebp decoded a picture to the right pixels",
		check: checkWebP,
	},
	{
		name: "zstd", module: "github.com/DataDog/zstd@v1.5.7", sub: ".", cc: "gcc",
		flags: []string{"-O1", "-I.", "-DZSTD_LEGACY_SUPPORT=4", "-DZSTD_MULTITHREAD=1", "-DZSTD_DISABLE_ASM=1"},
		globs: []string{"*.c", "OWN/roundtrip.c"},
		links: []link{{program: "roundtrip", libs: []string{"-pthread"}}},
		prepare: func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "roundtrip.c"), []byte(roundTrip), 0o644)
		},
		shown: "zstd compressed and restored a file",
		check: checkZstd,
	},
	{
		name: "flatbuffers", module: "github.com/google/flatbuffers@v25.12.19+incompatible", sub: ".", cc: "g++",
		flags: []string{"-std=c++17", "-O2", "-Iinclude", "-Igrpc", "-Isrc"},
		globs: []string{"src/*.cpp", "grpc/src/compiler/*.cc", "include/codegen/*.cc"},
		brief: []string{"src/util.cpp", "src/flathash.cpp", "src/code_generators.cpp", "src/annotated_binary_text_gen.cpp", "grpc/src/compiler/ts_generator.cc", "grpc/src/compiler/go_generator.cc"},
		links: []link{{program: "flatc", without: []string{"src/flathash.cpp"}}},
		shown: "flatc built the binary that its project keeps",
		check: checkFlatBuffers,
	},
}

// fetched is a codebase on this machine.
type fetched struct {
	codebase
	ctl
}

// fetch makes the go command fetch the code bases, or only one; they stay in its cache. It reports its
// progress on out. With whole, all of their sources are to be compiled.
func fetch(ctx context.Context, out screen, dir, only string, whole bool) ([]fetched, error) {
	var all []fetched
	fmt.Fprintln(out, "fetching the code bases, unless they are in the go command's cache")
	total := len(codebases)
	if only != "" {
		total = 1
	}
	fetching := out.begin("fetched", total)
	defer fetching.end()
	for _, c := range codebases {
		if only != "" && only != c.name {
			continue
		}
		cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", c.module)
		cmd.Dir = dir
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		answer, err := cmd.Output()
		var m struct{ Dir, Error string }
		if jerr := json.Unmarshal(answer, &m); err != nil || jerr != nil || m.Dir == "" {
			why := firstLine(m.Error, stderr.String(), fmt.Sprint(err))
			return nil, fmt.Errorf("cannot fetch %s, which the demo compiles: is there a network? Where there is one, this fetches all of them for later: go mod download %s (%s)", c.module, modules(), why)
		}
		own := filepath.Join(dir, c.name)
		if err := os.Mkdir(own, 0o755); err != nil {
			return nil, err
		}
		if c.prepare != nil {
			if err := c.prepare(own); err != nil {
				return nil, err
			}
		}
		if whole {
			c.brief = nil
		}
		fetching.add()
		all = append(all, fetched{c, ctl{module: m.Dir, root: filepath.Join(m.Dir, c.sub), out: own}})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no code base is called %s", only)
	}
	return all, nil
}

// modules returns what the go command is told to fetch for all code bases.
func modules() string {
	var all []string
	for _, c := range codebases {
		all = append(all, c.module)
	}
	return strings.Join(all, " ")
}

// firstLine returns the first line of the first text that has one.
func firstLine(texts ...string) string {
	for _, t := range texts {
		if line, _, _ := strings.Cut(strings.TrimSpace(t), "\n"); line != "" {
			return line
		}
	}
	return ""
}

// checkWebP decodes a lossless picture and compares it, pixel by pixel, with the PNG beside it.
func checkWebP(ctx context.Context, p ctl) error {
	pam := filepath.Join(p.out, "picture.pam")
	if err := execute(ctx, p.out, "./dwebp", "-quiet", filepath.Join(p.module, "testdata", "1_webp_ll.webp"), "-pam", "-o", pam); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(p.module, "testdata", "1_webp_ll.png"))
	if err != nil {
		return err
	}
	defer f.Close()
	want, err := png.Decode(f)
	if err != nil {
		return err
	}
	size := want.Bounds()
	var wanted []byte
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			c := color.NRGBAModel.Convert(want.At(x, y)).(color.NRGBA)
			wanted = append(wanted, c.R, c.G, c.B, c.A)
		}
	}

	data, err := os.ReadFile(pam)
	if err != nil {
		return err
	}
	header, pixels, found := bytes.Cut(data, []byte("ENDHDR\n"))
	if dim := fmt.Sprintf("WIDTH %d\nHEIGHT %d\n", size.Dx(), size.Dy()); !found || !bytes.Contains(header, []byte(dim)) {
		return fmt.Errorf("dwebp wrote a picture of another size: %q, want %q", header, dim)
	}
	if !bytes.Equal(visible(pixels), visible(wanted)) {
		return fmt.Errorf("dwebp decodes 1_webp_ll.webp to other pixels than its PNG has")
	}
	return nil
}

// visible clears the colour of pixels that are fully transparent.
func visible(rgba []byte) []byte {
	out := bytes.Clone(rgba)
	for i := 0; i+3 < len(out); i += 4 {
		if out[i+3] == 0 {
			clear(out[i : i+3])
		}
	}
	return out
}

// roundTrip compresses its argument's content and decompresses it again.
const roundTrip = `#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "zstd.h"

int main(int argc, char **argv)
{
	FILE *f = argc > 1 ? fopen(argv[1], "rb") : NULL;
	if (!f) return 2;
	fseek(f, 0, SEEK_END);
	size_t n = (size_t)ftell(f), bound = ZSTD_compressBound(n);
	rewind(f);
	char *in = malloc(n), *packed = malloc(bound), *out = malloc(n);
	if (!in || !packed || !out || fread(in, 1, n, f) != n) return 2;
	size_t m = ZSTD_compress(packed, bound, in, n, 19);
	if (ZSTD_isError(m) || m >= n) return 3;
	if (ZSTD_decompress(out, n, packed, m) != n || memcmp(in, out, n)) return 4;
	printf("%zu bytes, %zu compressed\n", n, m);
	return 0;
}
`

// checkZstd compresses and decompresses zstd's own largest source.
func checkZstd(ctx context.Context, p ctl) error {
	return execute(ctx, p.out, "./roundtrip", filepath.Join(p.root, "zstd_compress.c"))
}

// checkFlatBuffers makes flatc convert the project's JSON test data into a binary, and compares that with
// the one in the project.
func checkFlatBuffers(ctx context.Context, p ctl) error {
	tests := filepath.Join(p.module, "tests")
	flatc := filepath.Join(p.out, "flatc")
	if err := execute(ctx, tests, flatc, "-b", "-o", p.out, "-I", "include_test", "monster_test.fbs", "monsterdata_test.json"); err != nil {
		return err
	}
	same, err := equalFiles(filepath.Join(p.out, "monsterdata_test.mon"), filepath.Join(tests, "monsterdata_test.mon"))
	if err != nil {
		return err
	}
	if !same {
		return fmt.Errorf("flatc makes another monsterdata_test.mon than the project has")
	}
	return nil
}

// execute runs a program in dir; an error includes its output.
func execute(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, firstLine(string(out)))
	}
	return nil
}

func equalFiles(a, b string) (bool, error) {
	x, err := os.ReadFile(a)
	if err != nil {
		return false, err
	}
	y, err := os.ReadFile(b)
	return bytes.Equal(x, y), err
}
