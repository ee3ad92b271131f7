package attacks

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// listed makes of a job that brings its files one that names all but the first in a list, and brings their contents
// for the host to keep.
func listed(j *rawjob.Job) *rawjob.Job {
	b := *j.Body
	l := &job.List{Dirs: b.Dirs, Links: b.Links}
	text := j.Text
	own := text[:b.Files[0].Len]
	text = text[len(own):]
	contents := make(map[unit.ContentID][]byte)
	for i := range b.Files[1:] {
		f := &b.Files[i+1]
		x := job.ListedFile{Name: f.Name, Len: f.Len, MTime: f.MTime, Exec: f.Exec, Same: max(f.Same, 1) - 1}
		if x.Same == 0 {
			content := text[:f.Len]
			text = text[f.Len:]
			x.Content = sha256.Sum256(content)
			contents[x.Content] = content
		}
		l.Files = append(l.Files, x)
	}
	b.Files, b.Dirs, b.Links = b.Files[:1], nil, nil
	n := &rawjob.Job{Toolchain: j.Toolchain, Timeout: j.Timeout, Sink: j.Sink, Body: &b, Text: slices.Clone(own)}
	for id, content := range contents {
		if len(content) > 0 {
			bring(n, id, content)
		}
	}
	name(n, l)
	return n
}

// bring adds a content to what a job brings.
func bring(j *rawjob.Job, id unit.ContentID, content []byte) {
	j.Body.Blobs = append(j.Body.Blobs, job.Blob{ID: id, Len: uint64(len(content))})
	j.Text = append(j.Text, content...)
}

// name adds a list to those that a job names, and to what it brings.
func name(j *rawjob.Job, l *job.List) unit.ContentID {
	text := l.Append(nil)
	id := unit.ContentID(sha256.Sum256(text))
	bring(j, id, text)
	j.Body.Lists = append(j.Body.Lists, id)
	return id
}

// TestListedAttacks: what a job names in lists gets nowhere that files which it brings would not, and a list
// lends a client nothing of the host's.
func TestListedAttacks(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of compiles")
	}
	bin := filepath.Join(farmtest.Programs(t), "rdistccd")
	tcs, have := identify(t)
	have = map[string]bool{"gcc": have["gcc"]}
	today := part.Of(t)
	for i, m := range modes {
		if m.tree == "off" || !today.Has("lists "+m.name) || *where != "" && m.name != *where {
			continue // without trees there are no lists
		}
		t.Run(m.name, func(t *testing.T) {
			if err := m.can(); err != nil {
				t.Skip(err)
			}
			s := newSite(t, m, bin, tcs)
			s.honest(t, "gcc")
			if !s.trees {
				t.Skip("no private trees here")
			}
			list := slices.DeleteFunc(chosen(t, have, i), func(tr trial) bool {
				return !tr.sources || tr.class == "dos" || tr.tenant || tr.encoded != nil || tr.repeat > 1 || tr.cancel > 0 || len(tr.files)+len(tr.links)+len(tr.dirs) < 2
			})
			if len(list) == 0 {
				t.Fatal("no attack has files that a list could name")
			}
			ran, kinds := map[string]*tally{}, map[string]int{}
			for _, tr := range list {
				j, err := s.job(tr)
				if err != nil {
					t.Fatal(err)
				}
				plain := s.tryJob(t, tr, j)
				v := s.tryJob(t, tr, listed(j))
				count(ran, kinds, tr, v)
				if *tell {
					t.Logf("%s: %s: %v", tr, v.what, v.breaches)
				}
				if len(v.breaches) > 0 {
					t.Errorf("%s %s: %q (%s)", tr.class, tr, v.breaches, v.what)
				}
				if answer(v) != answer(plain) { // as where the list itself were refused, which would show nothing
					t.Errorf("%s %s: %s; with the same files in a list: %s", tr.class, tr, plain.what, v.what)
				}
			}
			s.hostileLists(t)
			s.honest(t, "gcc")
			table(t, m.name, ran, kinds)
		})
		if !*full && m.can() == nil {
			break
		}
	}
}

// answer is what became of a job, without the compiler's exit status: nothing can be written to a file of a list,
// so that a compiler may fail where it would have overwritten one.
func answer(v verdict) string {
	what, _, _ := strings.Cut(v.what, ", status")
	return what
}

// hostileLists sends lists that no manager would.
func (s *site) hostileLists(t *testing.T) {
	t.Helper()
	const text = "int x;\n"
	tr := trial{&attack{id: "list", class: "read", leaks: map[string][]string{}, repeat: 1}, "gcc"}
	plain := func() *rawjob.Job {
		return &rawjob.Job{Toolchain: s.tcs["gcc"].ID, Sink: 1 << 20, Text: []byte(text), Body: &job.Body{Argv0: "gcc", Language: "c", Name: "in.c", Cwd: "/src",
			Args: []string{"-c", "in.c", "-o", "in.o"}, Files: []unit.File{{Name: "in.c", Len: uint64(len(text)), MTime: 1e18}}, Outputs: []unit.Output{{Name: "in.o"}}}}
	}
	content := []byte("/* planted */\n")
	file := func(name string) job.ListedFile {
		return job.ListedFile{Name: name, Len: uint64(len(content)), MTime: 1e18, Content: sha256.Sum256(content)}
	}
	send := func(what string, j *rawjob.Job, want ...string) {
		t.Helper()
		tr.id = "list: " + what
		v := s.tryJob(t, tr, j)
		v.breaches = slices.DeleteFunc(v.breaches, func(b string) bool { return strings.HasPrefix(b, "refused: refused lacks") })
		right := len(want) == 0
		for _, w := range want {
			right = right || strings.HasPrefix(v.what, w+" (") || v.what == w
		}
		if len(v.breaches) > 0 || !right {
			t.Errorf("%s: %q (%s), want %q", what, v.breaches, v.what, want)
		}
	}
	const (
		ran       = "ran, status 0, signal 0"
		malformed = "refused malformed"
		lacks     = "refused lacks"
	)

	// Names that lead out, if anything does: what is made there fires a canary.
	wit := s.c.fill("{WIT}")
	for _, n := range []string{
		"/proc/self/mem", "/proc/1/root" + wit + "/x", "/proc/sys/kernel/core_pattern", "/dev/null", "/dev/kmem", "/dev/fd/3", "/etc/passwd", "/etc/ld.so.preload",
		strings.Repeat("../", 40) + wit[1:] + "/x", "/src/" + strings.Repeat("../", 40) + wit[1:] + "/y", "..", "a/../..", "/", ".", "//etc//passwd", "/etc/passwd/.", "in.c/x",
		"a\nb.h", "a\x01\x7f\xff\xfe.h", "\xc0\xae\xc0\xae/\xc0\xae\xc0\xae/x.h", "%2e%2e/x.h", "a\\..\\b.h", strings.Repeat("n", 300), strings.Repeat("d/", 3000) + "x", "a\x00b",
	} {
		j := plain()
		bring(j, sha256.Sum256(content), content)
		name(j, &job.List{Files: []job.ListedFile{file(n)}})
		send(fmt.Sprintf("%.60q", n), j)
		for _, target := range []string{wit, n} { // files below a link
			j := plain()
			bring(j, sha256.Sum256(content), content)
			name(j, &job.List{Links: []unit.Link{{Name: "/src/l", Target: target}}, Files: []job.ListedFile{file("/src/l/z"), file("/src/l/" + n)}})
			send(fmt.Sprintf("%.60q below a link to %.60q", n, target), j)
		}
	}

	// Lists on lists. A list that is its own base would have to have its own sum in it.
	j := plain()
	bring(j, sha256.Sum256(content), content)
	first := name(j, &job.List{Files: []job.ListedFile{file("/a.h")}})
	second := name(j, &job.List{Base: first, Files: []job.ListedFile{file("/b.h")}})
	name(j, &job.List{Base: second, Files: []job.ListedFile{file("/c.h")}})
	send("a base that has a base", j, malformed)
	var ring [2]*job.List
	ring[0] = &job.List{Base: unit.ContentID{1}, Files: []job.ListedFile{file("/a.h")}}
	ring[1] = &job.List{Base: sha256.Sum256(ring[0].Append(nil)), Files: []job.ListedFile{file("/b.h")}}
	j = plain()
	bring(j, sha256.Sum256(content), content)
	j.Body.Lists = []unit.ContentID{name(j, ring[1])}
	// The first one claims to be what the second one is to it.
	bring(j, unit.ContentID{1}, ring[0].Append(nil))
	send("a ring of bases, under a name that is not its sum", j, malformed)
	j = plain()
	bring(j, sha256.Sum256(content), content)
	id := name(j, &job.List{Files: []job.ListedFile{file("/a.h")}})
	j.Body.Lists = []unit.ContentID{id, id}
	send("a list twice", j, malformed)
	j = plain()
	j.Body.Lists = []unit.ContentID{sha256.Sum256([]byte(text))}
	bring(j, j.Body.Lists[0], []byte(text))
	send("a source as a list", j, malformed)

	// The host's own files, by name and content: of the system's headers it may use those that it has, and it says
	// of no other file whether a client's guess is right.
	header := "/usr/include/errno.h"
	for _, n := range []string{header, "/etc/passwd", "/etc/shadow", s.c.fill("{SECRET}"), s.c.fill("{PRIVATE}"), "/usr/include/../../etc/passwd", "/usr/lib/../.." + s.c.fill("{SECRET}")} {
		guess, err := os.ReadFile(s.here(path.Clean(n)))
		if err != nil {
			guess = []byte("what is in " + n + " is not known here either") // of no content that was brought before
		}
		want := []string{lacks, malformed}
		if n == header {
			want = []string{ran}
		}
		l := &job.List{Files: []job.ListedFile{{Name: n, Len: uint64(len(guess)), MTime: 1e18, Content: sha256.Sum256(guess)}}}
		whole := l.Append(nil)
		id := unit.ContentID(sha256.Sum256(whole))
		j := plain()
		bring(j, id, whole)
		j.Body.Lists = []unit.ContentID{id}
		send("a list with the content of "+n+", which is not brought", j, want...)
		l.Files[0].Content = unit.ContentID{}
		frame, err := compress.Pack(nil, l.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		j = plain()
		bring(j, id, frame)
		j.Body.Blobs[0].Abridged, j.Body.Lists = true, []unit.ContentID{id}
		send("a list that leaves open the content of "+n, j, want...)
	}
}
