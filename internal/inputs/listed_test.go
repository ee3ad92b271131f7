package inputs

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestListed: the list of a job that its wrapper has made says what its body says. A body whose files a list cannot
// describe, or that does not fit its text, makes none.
func TestListed(t *testing.T) {
	body := &job.Body{
		Files: []unit.File{{Name: "d/x.c", Len: 3}, {Name: "../a.h", Len: 2, MTime: 7}, {Name: "probe"}, {Name: "b.h", Same: 2, MTime: 7, Exec: true}, {Name: "/usr/include/c.h", Len: 1}},
		Dirs:  []string{"e"}, Links: []unit.Link{{Name: "/l", Target: "/t"}},
	}
	s := Listed(body, []byte("srcaac"))
	if s == nil || s.Len != 6 || !s.Files[4].System {
		t.Fatalf("%+v", s)
	}
	l, err := job.ParseList(s.AppendList(nil))
	if err != nil {
		t.Fatal(err)
	}
	empty := unit.ContentID(sha256.Sum256(nil))
	want := (&job.List{Dirs: body.Dirs, Links: body.Links, Files: []job.ListedFile{
		{Name: "../a.h", Len: 2, MTime: 7, Content: sha256.Sum256([]byte("aa"))}, {Name: "probe", Content: empty},
		{Name: "b.h", Same: 1, MTime: 7, Exec: true}, {Name: "/usr/include/c.h", Len: 1, Content: sha256.Sum256([]byte("c"))},
	}}).Append(nil)
	if !bytes.Equal(l.Append(nil), want) {
		t.Errorf("%+v", l)
	}
	for i, text := range []string{"src", "aa", "", "", "c"} {
		if got, err := s.Files[i].Append([]byte(">")); err != nil || string(got) != ">"+text {
			t.Errorf("%s: %q, %v", s.Files[i].Name, got, err)
		}
	}
	for what, files := range map[string][]unit.File{
		"no files":                      nil,
		"a second name of the source":   {{Name: "x.c", Len: 6}, {Name: "y.c", Same: 1}},
		"less than the text":            {{Name: "x.c", Len: 5}},
		"more than the text":            {{Name: "x.c", Len: 5}, {Name: "a.h", Len: 2}},
		"lengths that exceed all bytes": {{Name: "x.c", Len: 1 << 63}, {Name: "a.h", Len: 1 << 63}},
	} {
		if Listed(&job.Body{Files: files}, []byte("srcaac")) != nil {
			t.Errorf("%s: there is a set", what)
		}
	}
}
