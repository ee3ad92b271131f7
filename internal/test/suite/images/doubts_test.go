package images

import (
	"path/filepath"
	"strings"
	"testing"
)

// doubt is a text, or words of the command, for which the compiler has to be asked what it reads.
type doubt struct {
	name  string
	text  string
	words []string
	where string // of compiles with it, if not on a host
}

var doubts = []doubt{
	{name: "computed", text: "#define NAME(x) <x.h>\n#include NAME(limits)\n"},
	{name: "computed-by-halves", text: "#define STR(x) #x\n#define XSTR(x) STR(x)\n#define PART2 part\n#include XSTR(PART2.h)\n"},
	{name: "has-include", text: "#define SYS(x) <x.h>\n#if __has_include(SYS(stdint))\n#include <stdint.h>\n#endif\n", where: "local:not-reproducible:has-include"},
	{name: "spelling", text: "#/**/include <lim\\\nits.h>\n"},
	{name: "pragma", text: "#pragma GCC dependency \"part.h\"\n", where: "local:not-reproducible:pragma"},
	{name: "time", text: "static const char now[] = __DATE__;\n", where: "local:not-reproducible:time"},
	{name: "charset", words: []string{"-finput-charset=utf-8"}},
	{name: "prefix", words: []string{"-iprefix", "i/"}},
	{name: "sysroot", words: []string{"--sysroot=sdk"}},
	{name: "sanitizer", words: []string{"-fsanitize=undefined"}},
	{name: "long-form", words: []string{"--include-directory=i"}},
}

// TestDoubts: where the compiler has to be asked what a source or a precompiled header reads, compiles with that header run on hosts as
// well, and what still keeps them here is not the header.
func TestDoubts(t *testing.T) {
	s := start(t)
	for i, m := range makers(t) {
		for j, d := range doubts {
			if (i+j)%2 != 0 { // another one has it
				continue
			}
			t.Run(m.cc+"/"+d.name, func(t *testing.T) {
				s := &site{t, s.Farm, s.ctx, s.work}
				rel := filepath.Join("doubt", m.cc, d.name)
				dir := filepath.Join(s.work, rel)
				file := func(name, text string) { s.write(filepath.Join(rel, name), text) }
				clean := strings.Replace(header, "#include <stddef.h>\n#include <string.h>\n", "typedef __SIZE_TYPE__ size_t;\nsize_t strlen(const char *);\n", 1)
				if d.name != "sysroot" {
					clean = header
				}
				file("h.h", clean)
				file("sdk/usr/include/x.h", "")
				file("i/x.h", "")
				file("part.h", "#define PART 1\n")
				where, stale := d.where, d.where
				if where == "" {
					where, stale = remote, here
				}
				build := func() {
					s.sh(dir, "$RD "+m.cc+" -O1 -g "+strings.Join(d.words, " ")+" -x "+m.language+" h.h -o "+m.image)
				}
				compile := func(source string) []string {
					return append(append(append([]string{m.cc, "-O1", "-g", "-MD"}, d.words...), m.use...), "-c", source)
				}
				build()
				file("x"+m.suffix, d.text+source)
				s.use("in the source", dir, where, compile("x"+m.suffix)...)
				s.use("again", dir, where, compile("x"+m.suffix)...)
				if d.text == "" {
					return
				}
				file("h.h", d.text+clean)
				build()
				file("x"+m.suffix, source)
				s.use("in the header", dir, where, compile("x"+m.suffix)...)
				file("part.h", "#define PART 2\n")
				s.use("a part of the header has changed", dir, stale, compile("x"+m.suffix)...)
				build()
				s.use("made again", dir, where, compile("x"+m.suffix)...)
				file("y"+m.suffix, d.text+source)
				s.use("in both", dir, where, compile("y"+m.suffix)...)
			})
		}
	}
}
