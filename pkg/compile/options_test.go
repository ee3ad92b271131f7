package compile

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// described are all options that a compiler tells of itself, with what it says that
// they do: those of its help, and those that it completes.
func described(t *testing.T, path string, f Family) map[string]string {
	t.Helper()
	about := map[string]string{}
	for _, o := range listed(t, path, f) {
		about[o] = ""
	}
	asks := [][]string{{"--help-hidden"}, {"-cc1", "-help"}}
	if f == GCC {
		asks = nil
		for _, what := range []string{"common", "target", "warnings", "optimizers", "params", "c", "c++", "undocumented", "common,undocumented"} {
			asks = append(asks, []string{"--help=" + what})
		}
	}
	line := regexp.MustCompile(`^ {1,4}(--?[A-Za-z#][^ \t<\[]*)(?:[ \t<\[].*?)?(?:  +(.*))?$`)
	for _, ask := range asks {
		out, err := exec.Command(path, ask...).Output()
		if err != nil {
			continue // a gcc without one of the languages
		}
		last := ""
		for l := range strings.SplitSeq(string(out), "\n") {
			if m := line.FindStringSubmatch(l); m != nil {
				last = m[1]
				about[last] += m[2]
			} else if last != "" {
				about[last] += " " + strings.TrimSpace(l)
			}
		}
	}
	return about
}

// travels reports whether a command with these words goes elsewhere as text, with the
// words in it. What it is refused for there counts as well.
func travels(d Driver, words ...string) bool {
	p := Parse(append(slices.Clone(words), "-c", "a.c"), d, nil)
	if p.Local || p.Text != "" || p.NamesFile() != "" {
		return false
	}
	args, _ := p.Remote(12, "/")
	for _, w := range words {
		if !slices.Contains(args, w) {
			return false
		}
	}
	return true
}

// travelsWhole is the same of sources.
func travelsWhole(d Driver, words ...string) bool {
	p := Parse(append(slices.Clone(words), "-c", "a.c"), d, nil)
	return !p.Local && p.Sources == ""
}

// told matches options whose value is any text, which is compared or written, and never names what is
// opened, run or loaded.
var told = regexp.MustCompile(`^--?(D|U|A|define-macro|undefine-macro|assert|f(debug|file|macro|coverage|profile)-prefix-map=|random-seed|frandom-seed` +
	`|f(debug|file|coverage)-compilation-dir=?|finstrument-functions-exclude-(file|function)-list=|fcoverage-|(no-)?system-header-prefix=|fprofile-prefix-map=|debug-prefix-map=|file-prefix-map=|macro-prefix-map=|instrument-functions-exclude-(file|function)-list=)`)

// hostile are values that a rule must not let through where there is only text, and
// hostileWhole those that no rule lets through.
var (
	hostile      = []string{"/etc/passwd", "../x", "x/y", "a|id", "`id`", "$(id)", "x y", "a\\b", "\"x\"", "<x", "x&y"}
	hostileWhole = []string{"@x", "a\nb", "\n", "a\rb", "\x01", "\x7f", strings.Repeat("x", 70<<10)}
)

// TestEveryOption goes through all options that the compilers here tell of. Each stays
// here, or goes with a value that has a rule; and none goes because it begins like another.
func TestEveryOption(t *testing.T) {
	for _, name := range installed() {
		t.Run(name, func(t *testing.T) {
			program, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("no %s here", name)
			}
			turns.SkipCase(t)
			t.Parallel()
			d := testDriver(t, name)
			withText, whole, here := 0, 0, 0
			for o, about := range described(t, program, d.Family) {
				row, arg, more := lookup(o, d.Family)
				if row == nil {
					if travelsWhole(d, o) || travelsWhole(d, o, "x") {
						t.Errorf("%q is not known, and travels", o)
					}
					here++
					continue
				}
				switch c := row.class(d.Family); {
				case goes[c]&toObject != 0:
					withText++
				case c < isQuery:
					whole++
				default:
					here++
					if travelsWhole(d, o) || travelsWhole(d, o, "x") || row == find(o+"x") && travelsWhole(d, o+"x") {
						t.Errorf("%q is to stay here, and travels", o)
					}
					continue
				}
				if suspicious := risky.FindString(about); suspicious != "" && (travels(d, o) || travels(d, o+"1") || more && travels(d, o, "x")) && !reviewed[strings.TrimRight(o, "=<>,.")] && !spoken.MatchString(o) {
					t.Errorf("%q goes with text, and says %q: %s", o, suspicious, about)
				}
				free := told.MatchString(o) || row.value == text
				for _, v := range hostile {
					if free && row.class(d.Family) != linker {
						break
					}
					if (more || row.form == either) && travels(d, o, v) || !more && travels(d, o+v) || !more && arg == "" && travels(d, o+"="+v) {
						t.Errorf("%q goes with text and the value %q", o, v)
					}
				}
				for _, v := range hostileWhole {
					if row.value == path && v != "@x" && len(v) <= maxPath {
						continue // a file may be called so
					}
					if row.value == macroText && strings.Trim(v, "ab\n") == "" {
						continue // a definition ends there
					}
					if more && travelsWhole(d, o, v) || row.form != alone && strings.HasSuffix(o, "=") && v != "@x" && travelsWhole(d, o+v) {
						t.Errorf("%q travels with the value %.20q", o, v)
					}
				}
				if row.form == alone || row == &anyFlag && !strings.Contains(o, "=") {
					if w := o + "-zz"; travelsWhole(d, w) {
						if other, _, _ := lookup(w, d.Family); other == nil || other.name == o && other != &anyWarning || other == &anyFlag {
							t.Errorf("%q travels, as it begins like %q", w, o)
						}
					}
				}
			}
			t.Logf("%s: %d options go with text, %d with sources only or not beyond the local half, %d stay", name, withText, whole, here)
		})
	}
}

// risky are words by which a compiler's help gives away an option that opens, runs or
// writes something.
var risky = regexp.MustCompile(`(?i)\b(files?|filename|path|paths|plugins?|load|loads|execute|director(y|ies)|programs?|scripts?|dump|dumps|dumped|print|prints|write|writes|output|executable|command|config(uration)?|cache|server|socket)\b`)

// reviewed are those that say so and were looked at: they write into the object or to
// the messages, or speak of the program that is compiled. -fstack-usage writes a file that is
// declared. What a later compiler adds has to be looked at before it stands here.
var reviewed = func() map[string]bool {
	m := map[string]bool{}
	for _, o := range strings.Fields(`--no-system-header-prefix --system-header-prefix -ObjC -faapcs-bitfield-load -fanalyzer-feasibility -fanalyzer-verbosity
		-fbinutils-version -fcomment-block-commands -fconstexpr-backtrace-limit -fdebug-compilation-dir -fdebug-prefix-map
		-fdebug-types-section -fdiagnostics-absolute-paths -fdiagnostics-column-unit -fdiagnostics-hotness-threshold
		-fdiagnostics-misexpect-tolerance -fdiagnostics-parseable-fixits -fdiagnostics-plain-output -fdiagnostics-print-source-range-info
		-fdiagnostics-show-cwe -fdiagnostics-show-option -fdiagnostics-show-template-tree -ffat-lto-objects -ffile-compilation-dir
		-ffile-prefix-map -ffile-reproducible -fgcse-las -fgcse-lm -fgnu-runtime -fhoist-adjacent-loads
		-finstrument-functions-exclude-file-list -finstrument-functions-exclude-file-list=filename -fisolate-erroneous-paths-attribute
		-fisolate-erroneous-paths-dereference -flarge-source-files -flto-unit -fmacro-backtrace-limit -fms-volatile
		-fno-modules-check-relocated -fno-modules-prune-non-affecting-module-map-files -fno-sanitize-ignorelist -fno-strict-return
		-fno-temp-file -fopenmp-enable-irbuilder -fplt -fpretty-templates -frwpi -fsanitize-address-use-odr-indicator
		-fsanitize-undefined-strip-path-components -fsched-spec -fsched-spec-load -fsplit-paths -fstack-check -fstack-usage
		-fstandalone-debug -ftemplate-backtrace-limit -ftree-phiprop -funique-internal-linkage-names -fuse-cuid -fwhole-program
		-fworking-directory -gno-codeview-command-line -grecord-gcc-switches -maix-shared-lib-tls-model-opt -mdaz-ftz
		-mignore-xcoff-visibility -mincremental-linker-compatible -mlvi-cfi -mlvi-hardening -mmark-bti-property -mno-daz-ftz
		-mno-incremental-linker-compatible -mno-lvi-cfi -mno-lvi-hardening -mno-regnames -mregnames -mrelax-cmpxchg-loop -mxsaves
		-fanalyzer-show-events-in-system-headers -fassume-sane-operators-new-delete -fdiagnostics-format -fdiagnostics-show-event-links -fdiagnostics-show-nesting
		-fdiagnostics-show-rules -fhardcfr-check-noreturn-calls -fharden-control-flow-redundancy -fpath-coverage-limit -ftrampoline-impl -funique-source-file-names
		-mld-seq-sa -mno-ld-seq-sa`) {
		m[o] = true
	}
	return m
}()

// spoken are warnings, and numbers of optimizers.
var spoken = regexp.MustCompile(`^(-W|--warn-|--param=)`)

// TestNegatedQueries: gcc answers what it is asked by -fversion and the like also where it says no, and compiles nothing. A host would be
// blamed for an object that is not there.
func TestNegatedQueries(t *testing.T) {
	for _, row := range table {
		name, ok := strings.CutPrefix(row.name, "-f")
		if !ok || row.gcc != isQuery {
			continue
		}
		for _, w := range []string{"-fno-" + name, "--no-" + name} {
			if travelsWhole(Driver{Family: GCC}, w) {
				t.Errorf("%s travels", w)
			}
		}
	}
}
