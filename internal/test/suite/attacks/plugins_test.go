package attacks

import (
	"bytes"
	"crypto/sha256"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// hostilePlugin sends a compiler with a plugin that is an attacker's. It runs, as any part of a compiler may, and gains nothing. It is loaded
// where it was sent with the compiler, and nowhere else.
func (s *site) hostilePlugin(t *testing.T, genuine *evilToolchain, of map[string]*tally, kinds map[string]int) {
	t.Helper()
	gcc := s.tcs["gcc"]
	s.about(&gcc)
	so := string(readFile(t, filepath.Join(s.c.dir, "evil/evil.so")))
	file := filepath.Join(s.c.names["PARTS"], "plugin/annobin.so")
	e := &evilToolchain{site: s, part: "plugin", file: file, targets: genuine.targets,
		shipment: genuine.with(t, so, []parcel.Entry{{Name: file, Exec: true, Len: uint64(len(so)), Sum: sha256.Sum256([]byte(so))}})}
	s.hangUp() // sending takes longer than a silent client may be
	s.sendToolchain(t, e.shipment)
	want := s.object(t, genuine.job(""))
	for _, c := range []struct {
		by     *evilToolchain
		loads  bool
		args   string
		brings string
	}{
		{e, true, "-fplugin=annobin", ""},
		{e, true, "-fplugin=" + file + " -fplugin-arg-annobin-x=" + s.c.names["SECRET"], ""},
		{e, false, "", ""},
		{e, false, "-fplugin=annobin", "/src/plugin/annobin.so"},
		{e, false, "-fplugin=annobin", file},
		{genuine, false, "-fplugin=annobin", ""},
		{genuine, false, "-fplugin=" + file, ""},
		{genuine, false, "-fplugin=annobin", file},
	} {
		j := c.by.job("")
		j.Body.Args = append(strings.Fields(c.args), j.Body.Args...)
		if c.brings != "" {
			j.Body.Files = append(j.Body.Files, unit.File{Name: c.brings, Len: uint64(len(so)), MTime: 1e18, Exec: true})
			j.Text = append(j.Text, so...)
		}
		tr := trial{&attack{id: strings.TrimSpace(c.by.part + " " + c.args + " " + c.brings), class: "plugin", must: "contain", repeat: 1}, "gcc"}
		if !c.loads && c.args != "" {
			tr.must = "reject"
		}
		v := s.tryJob(t, tr, j)
		ran := len(v.breaches)
		v.breaches = slices.DeleteFunc(v.breaches, func(b string) bool { return b == "exec: exec" && c.loads })
		if c.loads && ran == len(v.breaches) {
			v.breaches = append(v.breaches, "test: the plugin was not loaded")
		}
		count(of, kinds, tr, v)
		if *tell {
			t.Logf("%s: %s: %v", tr, v.what, v.breaches)
		}
		if len(v.breaches) > 0 {
			t.Errorf("%s: %q (%s) %s", tr, v.breaches, v.what, v.said)
		}
		if got := s.object(t, genuine.job("")); !bytes.Equal(got, want) {
			t.Errorf("%s: another object by a genuine compiler", tr)
		}
	}
}
