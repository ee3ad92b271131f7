package attacks

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// image is the precompiled header that jobs of these tests have made.
const image = "h.h.gch"

// mostImages and mostImageBytes are what a daemon keeps.
const (
	mostImages     = 1024
	mostImageBytes = 1 << 30
)

// imageAttacks are attacks of internal/test/program/evilcc whose place is the making of a precompiled header. Those that say what they
// have reached are left out, as a client is not told what is printed there. Short runs have a few.
func imageAttacks() (all []evilAttack) {
	if !*full {
		for _, name := range []string{"object-small", "object-secret", "object-zero", "object-directory", "other-outputs", "directory-moved", "object-zeros", "leave"} {
			all = append(all, evilAttack{"image", name})
		}
		return all
	}
	for _, name := range append([]string{"object-small", "change-toolchain", "leave"}, ownAttacks["object"]...) {
		all = append(all, evilAttack{"image", name})
	}
	for _, name := range ownAttacks["dos"] {
		all = append(all, evilAttack{"dos", name})
	}
	return all
}

// imageJob returns a compile that uses a precompiled header of n, which the toolchain makes. It makes the attack of this name while
// it does; "": none.
func (e *evilToolchain) imageJob(attack string, n int) *rawjob.Job {
	source, header := "int x = N;\n", fmt.Sprintf("#define N %d\n", n)
	b := &job.Body{Argv0: "gcc", Language: "c", Name: "in.c", Cwd: "/src", Args: []string{"-include", "h.h", "-c", "in.c", "-o", "out.o"}, Outputs: []unit.Output{{Name: "out.o"}},
		Files: []unit.File{{Name: "in.c", Len: uint64(len(source)), MTime: 1e18}}}
	j := &rawjob.Job{Toolchain: e.ID, Body: b, Text: []byte(source), Sink: 8 << 20}
	l := &job.List{}
	add := func(name, text string) {
		sum := sha256.Sum256([]byte(text))
		l.Files = append(l.Files, job.ListedFile{Name: name, Len: uint64(len(text)), MTime: 1e18, Content: sum})
		bring(j, sum, []byte(text))
	}
	if attack != "" {
		add("attack", e.order(attack)+"\nOBJECT="+image)
	}
	add("h.h", header)
	name(j, l)
	b.Images = []job.Body{{Argv0: "gcc", Args: []string{"-x", "c-header", "h.h", "-o", image}, Language: "c-header", Name: "h.h", Cwd: "/src",
		Outputs: []unit.Output{{Kind: unit.OutputObject, Name: image}}, Lists: b.Lists}}
	b.Lists = nil
	return j
}

// begun returns how many precompiled headers the daemon has tried to make.
func (s *site) begun(t *testing.T) float64 {
	t.Helper()
	return s.metric(t.Context(), "rdistccd_images_made_total", "") + s.metric(t.Context(), "rdistccd_images_failed_total", "")
}

// hostileImages has precompiled headers made by an attacker's program. It gains nothing by it, whatever it makes, and those
// of a genuine compiler under the same name, of the same files, are what they were.
func (s *site) hostileImages(t *testing.T, genuine *evilToolchain, evil []*evilToolchain, of map[string]*tally, kinds map[string]int) {
	t.Helper()
	want := s.object(t, genuine.imageJob("", 1))
	honest := func(after any) {
		t.Helper()
		if got := s.object(t, genuine.imageJob("", 1)); !bytes.Equal(got, want) {
			t.Errorf("another object by a genuine compiler and its own precompiled header, after %v", after)
		}
	}
	for _, e := range evil {
		if got := s.object(t, e.imageJob("", 1)); !bytes.Equal(got, want) {
			t.Fatalf("the attacker's %s does not pass on what it is asked", e.part)
		}
		for _, a := range imageAttacks() {
			j, before := e.imageJob(a.name, 1), s.begun(t)
			if a.class == "dos" {
				j.Timeout = dosTime
			}
			tr := trial{&attack{id: a.name + "/" + e.part, class: a.class, must: "contain", repeat: 1}, "gcc"}
			v := s.tryJob(t, tr, j)
			if s.begun(t) == before && !strings.HasPrefix(v.what, "failed") { // what has to stop is not counted
				v.breaches = append(v.breaches, "test: no precompiled header was to be made")
			}
			tr.class = "image"
			count(of, kinds, tr, v)
			if *tell {
				t.Logf("%s of %s: %s: %v", tr, image, v.what, v.breaches)
			}
			if len(v.breaches) > 0 {
				t.Errorf("%s %s: %q (%s) %s", a.class, tr, v.breaches, v.what, v.said)
			}
			honest(tr)
		}
	}
	s.manyImages(t, evil[0], of, kinds)
	honest("many of them")
}

// manyImages has more precompiled headers made than there is room for: in number, and in bytes.
func (s *site) manyImages(t *testing.T, e *evilToolchain, of map[string]*tally, kinds map[string]int) {
	t.Helper()
	small, big := 4, 0
	if *full {
		small, big = mostImages+50, 7
	}
	for n := range small + big {
		name := "object-small"
		if n >= small {
			name = "object-large"
		}
		tr := trial{&attack{id: fmt.Sprintf("image %d", n), class: "image", must: "contain", repeat: 1, tenant: true}, "gcc"} // what is kept is no leak
		v := s.tryJob(t, tr, e.imageJob(name, n+2))
		if kept, size := s.metric(t.Context(), "rdistccd_images", ""), s.metric(t.Context(), "rdistccd_images_bytes", ""); kept > mostImages || size > mostImageBytes {
			v.breaches = append(v.breaches, fmt.Sprintf("images: %v of %v bytes are kept", kept, size))
		}
		count(of, kinds, tr, v)
		if len(v.breaches) > 0 {
			t.Errorf("%s: %q (%s) %s", tr, v.breaches, v.what, v.said)
		}
	}
	if *full && s.metric(t.Context(), "rdistccd_images_evictions_total", "") < 1 {
		t.Errorf("none was dropped")
	}
}
