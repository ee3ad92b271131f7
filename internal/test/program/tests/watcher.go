package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// quiet is how long nothing may be printed.
const quiet = 9 * time.Second

// event is a line of `go test -json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
	// Of actions of builds.
	ImportPath string
}

// watcher reads the events of a run, prints a line for each package that ends, and keeps what is said at the end.
type watcher struct {
	out    io.Writer
	total  int    // packages
	part   string // value of the variable that chooses a part; "": everything
	used   func(pkg string) (usage, bool)
	began  time.Time
	failed int // tests, and packages without one that failed
	passed int
	// Why tests were skipped, with how many were.
	skipped map[string][]string

	mu      sync.Mutex
	said    time.Time            // when the last line was printed; guarded by mu, as all below
	running map[string]time.Time // packages, since when
	current map[string]string    // the test that a package has begun last
	done    int
	text    map[string][]string // output of tests that have not ended, by package and test
	again   []string            // how to run what failed
	words   map[string]string   // what each of these said first
}

func newWatcher(out io.Writer, total int, part string, used func(string) (usage, bool)) *watcher {
	now := time.Now()
	return &watcher{out: out, total: total, part: part, used: used, began: now, said: now,
		skipped: make(map[string][]string), running: make(map[string]time.Time), current: make(map[string]string), text: make(map[string][]string), words: make(map[string]string)}
}

// read reads events until they end, and says now and then what is running.
func (w *watcher) read(events io.Reader) error {
	over := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-over:
				tick.Stop()
				return
			case <-tick.C:
				w.tick()
			}
		}
	})
	defer wait.Wait()
	defer close(over)
	r := bufio.NewReader(events)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			var e event
			if jerr := json.Unmarshal([]byte(line), &e); jerr != nil {
				w.say(strings.TrimSuffix(line, "\n")) // the go command's own words
			} else {
				w.event(e)
			}
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (w *watcher) say(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sayLocked(line)
}

func (w *watcher) sayLocked(line string) {
	fmt.Fprintln(w.out, line)
	w.said = time.Now()
}

// tick says what is running, if nothing was said for a while.
func (w *watcher) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.said) < quiet {
		return
	}
	pkgs := slices.SortedFunc(maps.Keys(w.running), func(x, y string) int { return w.running[x].Compare(w.running[y]) })
	what := "compiling"
	if len(pkgs) > 0 {
		var words []string
		for _, p := range pkgs {
			words = append(words, strings.TrimSpace(fmt.Sprintf("%s %s", p, w.current[p])))
		}
		what = strings.Join(words, ", ")
	}
	w.sayLocked(fmt.Sprintf("...  %4.0f s, %d of %d packages; running: %s", time.Since(w.began).Seconds(), w.done, w.total, what))
}

func (w *watcher) event(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pkg := dirOf(e.Package)
	key := pkg + " " + e.Test
	switch e.Action {
	case "build-output":
		w.sayLocked(strings.TrimSuffix(e.Output, "\n"))
	case "start":
		w.running[pkg] = time.Now()
	case "run":
		w.current[pkg], _, _ = strings.Cut(e.Test, "/")
	case "output":
		w.text[key] = append(w.text[key], e.Output)
	case "pass", "skip", "fail":
		if e.Test == "" {
			w.endLocked(pkg, e)
			return
		}
		text := w.text[key]
		delete(w.text, key)
		switch e.Action {
		case "pass":
			w.passed++
		case "skip":
			why := reason(text)
			w.skipped[why] = append(w.skipped[why], pkg+" "+e.Test)
		case "fail":
			w.failed++
			if len(text) > 0 {
				w.sayLocked(strings.TrimSuffix(strings.Join(text, ""), "\n"))
			}
			if !slices.ContainsFunc(w.again, func(s string) bool { return strings.HasPrefix(s, key+"/") }) {
				w.again = append(w.again, key)
				w.words[key] = complaint(text)
			}
		}
	}
}

// endLocked says that a package has ended.
func (w *watcher) endLocked(pkg string, e event) {
	delete(w.running, pkg)
	w.done++
	word := map[string]string{"pass": "ok  ", "skip": "none", "fail": "FAIL"}[e.Action]
	if e.Action == "fail" {
		// What the package said outside of its tests, and tests that did not end, as after a panic.
		for _, key := range slices.Sorted(maps.Keys(w.text)) {
			if strings.HasPrefix(key, pkg+" ") {
				w.sayLocked(strings.TrimSuffix(strings.Join(w.text[key], ""), "\n"))
			}
		}
		if !slices.ContainsFunc(w.again, func(s string) bool { return strings.HasPrefix(s, pkg+" ") }) {
			w.failed++
			w.again = append(w.again, pkg+" ")
		}
	}
	maps.DeleteFunc(w.text, func(key string, _ []string) bool { return strings.HasPrefix(key, pkg+" ") })
	cpu := ""
	if u, ok := w.used(pkg); ok {
		cpu = fmt.Sprintf(", %.1f s of CPU", u.cpu.Seconds())
	}
	w.sayLocked(fmt.Sprintf("%s %-40s %.1f s%s (%d of %d)", word, pkg, e.Elapsed, cpu, w.done, w.total))
}

// complaint returns the first line by which a test says why it fails, or else its first line, cut to what fits a summary.
func complaint(text []string) string {
	first := ""
	for _, line := range text {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "=== ") {
			continue
		}
		if strings.Contains(line, "_test.go:") {
			first = line
			break
		}
		first = cmp.Or(first, line)
	}
	return first[:min(len(first), 500)]
}

// reason returns why a test was skipped, of what it printed: the last line that the test itself said.
func reason(text []string) string {
	for _, line := range slices.Backward(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "=== ") {
			continue
		}
		if _, said, ok := strings.Cut(line, "_test.go:"); ok {
			if _, said, ok = strings.Cut(said, ": "); ok {
				return said
			}
		}
		return line
	}
	return "no reason given"
}

// sum says what was skipped, what was used, and what failed. The last line has the counts.
func (w *watcher) sum(b budget, used map[string]usage, over []usage) {
	n := 0
	for _, why := range slices.SortedFunc(maps.Keys(w.skipped), func(x, y string) int {
		return cmp.Or(cmp.Compare(len(w.skipped[y]), len(w.skipped[x])), cmp.Compare(x, y))
	}) {
		tests := w.skipped[why]
		n += len(tests)
		more := ""
		if len(tests) > 1 {
			more = fmt.Sprintf(" and %d more", len(tests)-1)
		}
		fmt.Fprintf(w.out, "skipped: %s: %s%s\n", why, tests[0], more)
	}
	cpu, may := b.sum(used)
	granted := ""
	if len(used) > 0 {
		granted = fmt.Sprintf(", %.0f s of CPU, %.0f s granted", cpu.Seconds(), may.Seconds())
	}
	fmt.Fprintf(w.out, "%d packages in %.0f s%s\n", w.done, time.Since(w.began).Seconds(), granted)
	failed := w.failed
	for _, u := range over {
		word, rest := "over", fmt.Sprintf("; more than %d times that fails", noise)
		if b.fails(u) {
			word, rest = "FAIL", ""
			failed++
		}
		fmt.Fprintf(w.out, "%s %s used %.1f s of CPU, its budget is %.0f s%s\n", word, u.pkg, u.cpu.Seconds(), b.of(u.pkg).Seconds(), rest)
	}
	for _, key := range w.again {
		pkg, test, _ := strings.Cut(key, " ")
		fmt.Fprintf(w.out, "FAIL %s; again: %s\n", strings.TrimSpace(key), command(w.part, pkg, test))
		if said := w.words[key]; said != "" {
			fmt.Fprintf(w.out, "     %s\n", said)
		}
	}
	fmt.Fprintf(w.out, "%d passed, %d failed, %d skipped\n", w.passed, failed, n)
}

// command returns the command that runs a test again, with the part of its suite that it ran in.
func command(value, pkg, test string) string {
	words := "go test ./" + strings.TrimPrefix(pkg, ".")
	if test != "" {
		var names []string
		for _, n := range strings.Split(test, "/") {
			names = append(names, "^"+strings.NewReplacer("+", `\+`, ".", `\.`, "*", `\*`, "(", `\(`, ")", `\)`, "[", `\[`, "$", `\$`, "'", ".").Replace(n)+"$")
		}
		words += " -run '" + strings.Join(names, "/") + "'"
	}
	if value != "" {
		words = part.Variable + "=" + value + " " + words
	}
	return words
}
