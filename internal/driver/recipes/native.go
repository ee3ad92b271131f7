package recipes

import (
	"context"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/driver"
)

// maxNative bounds a NativeCache: a build has few sets of machine options.
const maxNative = 256

// NativeCache keeps what `native` in -march=native and its like stands for on this machine. Its zero value
// is ready for concurrent use.
type NativeCache struct {
	sets memo[*Native] // nil: no other words are equivalent
}

// Native is a compiler's meaning of `native` here, in words for its driver.
type Native struct {
	// Words replace all words of a command that end in "=native". They must precede every other word, as
	// options for single features override them.
	Words []string
	// Order means that the compiler proper gets its options in another order than from `native`. The
	// code is the same; a record of options (DW_AT_producer, -frecord-gcc-switches) is not. With a gcc,
	// driver.Recipe.Front makes it the same.
	Order bool
}

// Get returns the words to use instead of those of machine that end in "=native". machine holds a command's
// -m words, in order; path is the compiler, identified by id. The compiler is asked a few times when a set
// first comes, which takes 10 ms for gcc and 200 for clang. ok is false if no other words result in the
// same compiler options.
func (c *NativeCache) Get(ctx context.Context, id, path, family string, machine, env []string) (Native, bool) {
	n := c.sets.get(id+"\x00"+path+"\x00"+strings.Join(machine, "\x00"), maxNative, func() *Native {
		a := asker{ctx, path, env, "/"}
		expand := a.clangNative
		if family == "gcc" {
			expand = a.gccNative
		}
		if n, ok := expand(machine); ok {
			return &n
		}
		return nil
	})
	if n == nil {
		return Native{}, false
	}
	return *n, true
}

func isNative(word string) bool { return strings.HasSuffix(word, "=native") }

// proper returns the words that the compiler proper gets for machine options.
func (a *asker) proper(machine []string) []string {
	_, text, err := a.ask("", append([]string{"-###", "-S", "-x", "c", "/dev/null", "-o", "-"}, machine...)...)
	if err != nil {
		return nil
	}
	commands, err := driver.Commands(text)
	if err != nil || len(commands) != 1 {
		return nil
	}
	return commands[0][1:]
}

// gccNative uses the machine options that cc1 gets. On x86 the driver writes those of `native` before all
// others, with parameters between them; when they are words for the driver, it sorts them by kind.
func (a *asker) gccNative(machine []string) (n Native, ok bool) {
	raw := joinParams(a.proper(machine))
	want := prune(raw)
	rest := slices.DeleteFunc(slices.Clone(machine), isNative)
	own := prune(joinParams(a.proper(rest)))
	if want == nil || own == nil {
		return n, false
	}
	if n.Words = behindSource(raw); n.Words == nil {
		for _, w := range want {
			if machineWord(w) && !slices.Contains(own, w) {
				n.Words = append(n.Words, w)
			}
		}
	}
	got := prune(joinParams(a.proper(append(slices.Clone(n.Words), rest...))))
	if n.Order = !slices.Equal(got, want); n.Order && behindSource(raw) == nil {
		return n, false
	}
	// -m words must be in the same order, as later ones override; the others may be in any order.
	return n, slices.Equal(machineWords(got), machineWords(want)) && slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
}

// behindSource returns the options right after the source.
func behindSource(cc1 []string) []string {
	i := slices.Index(cc1, "/dev/null")
	if i < 0 {
		return nil
	}
	cc1 = cc1[i+1:]
	n := 0
	for n < len(cc1) && machineWord(cc1[n]) {
		n++
	}
	return append([]string(nil), cc1[:n]...)
}

func machineWord(w string) bool {
	return strings.HasPrefix(w, "-m") || strings.HasPrefix(w, "--param=")
}

func machineWords(words []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, "-m") })
}

// prune keeps the last of -mX and -mno-X, and of -mX=, as driver and compiler proper do.
func prune(words []string) []string {
	last := make(map[string]int)
	for i, w := range words {
		last[machineName(w)] = i
	}
	var kept []string
	for i, w := range words {
		if name := machineName(w); name == "" || last[name] == i {
			kept = append(kept, w)
		}
	}
	return kept
}

// machineName returns what a machine option sets, or "" for other words.
func machineName(w string) string {
	w, ok := strings.CutPrefix(w, "-m")
	if !ok {
		return ""
	}
	if name, _, ok := strings.Cut(w, "="); ok {
		return name + "="
	}
	return strings.TrimPrefix(w, "no-")
}

// joinParams joins each parameter option with its value into one word.
func joinParams(words []string) []string {
	var joined []string
	for i := 0; i < len(words); i++ {
		if words[i] == "--param" && i+1 < len(words) {
			i++
			joined = append(joined, "--param="+words[i])
			continue
		}
		joined = append(joined, words[i])
	}
	return joined
}

// clangNative names processor and features one by one. Features without a -m option are passed to the
// compiler proper: no option of the user's overrides them.
func (a *asker) clangNative(machine []string) (n Native, ok bool) {
	cc1 := a.proper(machine)
	var cpu, tune string
	var features []string
	for i := 0; i+1 < len(cc1); i++ {
		switch cc1[i] {
		case "-target-cpu":
			cpu = cc1[i+1]
		case "-tune-cpu":
			tune = cc1[i+1]
		case "-target-feature":
			features = append(features, cc1[i+1])
		}
	}
	if cpu == "" {
		return n, false
	}
	// Those of the user's own words follow these again.
	n.Words = append(n.Words, "-march="+cpu)
	if tune != "" {
		n.Words = append(n.Words, "-mtune="+tune)
	}
	rest := slices.DeleteFunc(slices.Clone(machine), isNative)
	unnamed := a.unnamed(features)
	for _, f := range features {
		switch {
		case unnamed[flag(f)]:
			n.Words = append(n.Words, "-Xclang", "-target-feature", "-Xclang", f)
		default:
			n.Words = append(n.Words, flag(f))
		}
	}
	n.Order = true
	const source = "void f(void) {}\n"
	ir := []string{"-S", "-emit-llvm", "-x", "c", "-", "-o", "-"}
	want, _, err1 := a.ask(source, append(slices.Clone(machine), ir...)...)
	got, _, err2 := a.ask(source, append(append(slices.Clone(n.Words), rest...), ir...)...)
	return n, err1 == nil && err2 == nil && want == got && got != ""
}

// flag returns the driver's option for a feature "+avx2" or "-avx2".
func flag(feature string) string {
	if strings.HasPrefix(feature, "-") {
		return "-mno-" + feature[1:]
	}
	return "-m" + strings.TrimPrefix(feature, "+")
}

// unnamed returns the features for which the driver has no option: it reports the option by name as unknown.
func (a *asker) unnamed(features []string) map[string]bool {
	args := []string{"-###", "-fsyntax-only", "-x", "c", "/dev/null"}
	for _, f := range features {
		args = append(args, flag(f))
	}
	_, text, _ := a.ask("", args...)
	bad := make(map[string]bool)
	for line := range strings.Lines(text) {
		if _, rest, ok := strings.Cut(line, "unknown argument"); ok {
			if i := strings.IndexByte(rest, '\''); i >= 0 {
				name, _, _ := strings.Cut(rest[i+1:], "'")
				bad[name] = true
			}
		}
	}
	return bad
}
