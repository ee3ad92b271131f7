package equal

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rdistcc/rdistcc/internal/test/kit/honest"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

var honestOf = flag.String("honest", "", "lists that TestHonest takes: of these Debian packages, with commas between, or all; without: some, evenly")

// someHonest is how many that are.
const someHonest = 60

// below is where commands run, below a place's directory: some lists name files above.
const below = "d/d/d/d"

// TestHonest: commands of real builds are compiled on hosts, which confine compiles as strictly as this
// machine can, with the same result as here, byte for byte. None is refused, and what stays here has a
// reason that docs/sandbox.md lists.
func TestHonest(t *testing.T) {
	g := stand(t)
	if asText() {
		t.Skip("what travels as text only is not what the lists are about")
	}
	lists, err := honest.All()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../../../docs/sandbox.md")
	if err != nil {
		t.Fatal(err)
	}
	deliberate := honest.AtHome(string(doc))
	switch *honestOf {
	case "all":
	case "":
		today := part.Of(t)
		var some []honest.List
		for i := range someHonest {
			if l := lists[i*len(lists)/someHonest]; today.Has(fmt.Sprint(l)) {
				some = append(some, l)
			}
		}
		lists = some
	default:
		lists = slices.DeleteFunc(lists, func(l honest.List) bool { return !slices.Contains(strings.Split(*honestOf, ","), l.Package) })
	}
	var mu sync.Mutex
	home := make(map[string]int) // by reason; guarded by mu, as all below
	packages := make(map[string]bool)
	shapes := make(map[string]bool)
	equal, failing, missing := 0, 0, 0
	var wait sync.WaitGroup
	end, limited := t.Deadline()
	for _, l := range lists {
		if limited && time.Until(end) < patience {
			t.Error("no time for the other lists")
			break
		}
		if _, err := exec.LookPath(l.Words[0]); err != nil {
			missing++
			continue
		}
		p := <-g.places
		wait.Go(func() {
			defer func() { g.places <- p }()
			f, line := madeUp(l)
			v, err := p.compare(t.Context(), f, command{line: line})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("%v: %v", l, err)
				return
			}
			packages[l.Package], shapes[l.Shape()] = true, true
			for _, d := range v.diffs {
				t.Errorf("%s\n%s: %v", d, l.Package, l)
			}
			if err := v.keep(fmt.Sprint("honest-", len(shapes))); err != nil {
				t.Error(err)
			}
			if len(v.wrapped.report) == 0 {
				t.Errorf("no job: %s: %v", l.Package, l)
			}
			for _, line := range v.wrapped.report { // several, where several sources were taken apart
				where, reason, _ := strings.Cut(line, ":")
				switch {
				case v.plain.status != 0 && (where == "remote" || reason == "diagnostics"):
					failing++ // as those that another version of a compiler has
				case where == "remote" && len(v.diffs) == 0:
					equal++
				case where != "remote":
					home[reason]++
					if !deliberate[reason] {
						t.Errorf("stays here (%s): %s: %v\n%s", reason, l.Package, l, head(v.plain.stderr))
					}
				}
			}
		})
	}
	wait.Wait()
	var reasons []string
	for _, r := range slices.Sorted(maps.Keys(home)) {
		reasons = append(reasons, fmt.Sprint(r, " ", home[r]))
	}
	delete(packages, "")
	t.Logf("%d lists of %d shapes, %d packages; sent: %d jobs with equal files, %d that the compiler itself refuses; here: %s; no compiler for %d lists; sandbox: %s",
		len(lists), len(shapes), len(packages), equal, failing, strings.Join(reasons, ", "), missing, g.sandbox)
}

// madeUp makes up the files that a list names, small, and its command.
func madeUp(l honest.List) (*fixtures, string) {
	a := new(txtar.Archive)
	put := func(name, text string) bool {
		if rest, ok := strings.CutPrefix(name, honest.Root); ok {
			name = "home/" + rest
		} else if strings.HasPrefix(name, "/") {
			return false // the machine's
		} else {
			name = path.Join(below, name)
		}
		if name == ".." || strings.HasPrefix(name, "../") {
			return false
		}
		if !slices.ContainsFunc(a.Files, func(f txtar.File) bool { return f.Name == name }) {
			a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(text)})
		}
		return true
	}
	put(".here", "")
	words := l.Expanded()
	own := "#define HONEST 1\n"
	var sources []string
	for i := 1; i < len(words); i++ {
		w, next := words[i], ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		option := ""
		for _, o := range []string{"-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-I", "-o", "-MF", "-MT", "-MQ", "-D", "-U", "-x", "-Wp,-MD,", "-Wp,-MMD,"} {
			if arg, ok := strings.CutPrefix(w, o); ok && (arg != "" || next != "" && !strings.HasSuffix(o, ",")) {
				if option = o; arg == "" {
					i++
				} else {
					next = arg
				}
				break
			}
		}
		switch option {
		case "-include", "-imacros":
			put(next, "/* made up */\n")
		case "-I", "-isystem", "-iquote":
			if put(path.Join(next, ".here"), "") && own[1] == 'd' {
				put(path.Join(next, "honest.h"), own)
				own = "#include \"honest.h\"\n"
			}
		case "-idirafter":
			put(path.Join(next, ".here"), "")
		case "-o", "-MF", "-Wp,-MD,", "-Wp,-MMD,":
			put(path.Join(path.Dir(next), ".here"), "")
		case "":
			if honest.IsSource(w) {
				sources = append(sources, w)
			}
		}
	}
	system := "#include <string.h>\n"
	if slices.Contains(words, "-nostdinc") || slices.Contains(words, "-nostdinc++") || slices.ContainsFunc(words, func(w string) bool {
		return strings.HasPrefix(w, "--target=") || strings.HasPrefix(w, "--sysroot") || w == "-m32" || w == "-mx32"
	}) {
		system = ""
	}
	for _, s := range sources {
		text := own + system + "int honest(int x);\nint honest(int x) { return x + HONEST; }\n"
		switch path.Ext(s) {
		case ".s", ".S", ".sx":
			text = "\t.text\n\t.globl honest\nhonest:\n\tnop\n"
		case ".i", ".ii":
			text = "int honest(int x);\nint honest(int x) { return x + 1; }\n"
		}
		put(s, text)
	}
	var line []string
	for _, w := range l.Words {
		if l.Response != nil && strings.HasPrefix(w, "@") {
			var list strings.Builder
			for _, r := range l.Response {
				r = strings.ReplaceAll(r, honest.Root, "../../../../home/")
				list.WriteString(strings.NewReplacer(`\`, `\\`, `"`, `\"`, `'`, `\'`, " ", `\ `).Replace(r) + "\n")
			}
			put(w[1:], list.String())
		}
		w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		line = append(line, strings.ReplaceAll(w, honest.Root, `'"$ROOT"'`))
	}
	set := ""
	if slices.ContainsFunc(sources, func(s string) bool { return path.Ext(s) == ".S" }) {
		set = "export TMPDIR=/tmp; " // as in a user's shell: clang may record it in the object of such a source
	}
	return &fixtures{a, time.Now().Add(-time.Hour).Truncate(time.Second)}, `ROOT=$PWD/home/; cd ` + below + `; ` + set + `$W ` + strings.Join(line, " ")
}
