package caches

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// trusting returns the settings of a store with a list for cache.trust. What hosts keep is not looked at.
func trusting(settings, list string) string {
	settings = strings.Replace(settings, "cache: {", "cache: {farm: false, trust: ["+list+"], ", 1)
	return strings.Replace(settings, "cache:\n", "cache:\n  farm: false\n  trust: ["+list+"]\n", 1)
}

// TestSignedStores: what one machine of a farm with certificates has put into a store, another one takes from there.
func TestSignedStores(t *testing.T) {
	part.Skip(t)
	for tier, serve := range map[string]func(t *testing.T) sharedStore{"redis": serveRedis, "s3": serveS3, "reapi": serveREAPI, "team": serveHelper} {
		t.Run(tier, func(t *testing.T) {
			s, client := underTLS(t)
			store := serve(t)
			ci := client("ci", trusting(store.settings, ""))
			s.write("a.c", "#include \"a.h\"\nint f(void) { int unused; return A; }\n")
			s.write("a.h", "#define A 1\n")
			cmd := []string{"gcc", "-O2", "-g", "-Wall", "-MD", "-c", "a.c", "-o", "a.o"}
			s.compilesWith("remote", ci.vars, cmd...)
			s.wait("the result to be in the store", func() bool { return store.count() == 1 })
			carol := client("carol", trusting(store.settings, ""))
			s.compilesWith("cached:"+tier, carol.vars, cmd...)
			s.wait("the copy here", func() bool { return s.run(carol.vars, cmd...).where == "cached:manager" })
			for _, args := range [][]string{{"status"}, {"cache", "stats"}} {
				if out := s.says(carol, args...); strings.Contains(out, "unsigned") {
					t.Errorf("%s says\n%s", args, out)
				}
			}
			picky := client("dave", trusting(store.settings, `"not:ci"`))
			s.compilesWith("remote", picky.vars, cmd...)
			if why := s.says(picky, "why", "a.c"); !strings.Contains(why, tier+" has a result, but nobody has signed it whose signature counts") {
				t.Errorf("why says\n%s", why)
			}
			if log := s.log(); strings.Count(log, "ci is excepted") != 1 {
				t.Errorf("the log:\n%s", log)
			}
		})
	}
}

// TestPoisonedStore: somebody who can write to a store, but has no key that counts, puts another object there, whole and under the
// right name. That is a miss with a line in the log: the object is the right one, and takes the place of the other in the store.
// A machine that asks for no signatures takes the wrong one.
func TestPoisonedStore(t *testing.T) {
	s, client := underTLS(t)
	store := serveS3(t)
	ci := client("ci", trusting(store.settings, ""))
	s.write("a.c", "int f(void) { return 1; }\n")
	s.write("b.c", "int f(void) { return 666; }\n")
	cmd := func(source string) []string { return []string{"gcc", "-O2", "-c", source, "-o", "x.o"} }
	s.compilesWith("remote", ci.vars, cmd("a.c")...)
	s.compilesWith("remote", ci.vars, cmd("b.c")...)
	s.wait("the results to be in the store", func() bool { return store.count() == 2 })
	var file string // of the result that is attacked
	var good, evil []byte
	var key, other resultcache.Key
	for _, name := range store.entries() {
		b := s.read(name)
		k, from, err := resultcache.Describe(b)
		switch {
		case err != nil || !resultcache.IsSigned(b):
			t.Fatalf("%s: signed %t, %v", name, resultcache.IsSigned(b), err)
		case from.Source == "a.c":
			file, good, key = name, b, k
		default:
			evil, other = b, k
		}
	}
	put := func(b []byte, err error) {
		t.Helper()
		if err == nil {
			err = os.WriteFile(file, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	unsigned := func() ([]byte, error) {
		b, err := resultcache.Renamed(evil, other, key)
		if err != nil {
			return nil, err
		}
		return resultcache.MadeBy(b, key, s.Daemons[0].Addr)
	}
	anyone := client("dave-0", trusting(store.settings, "anyone"))
	put(unsigned())
	if got := s.run(append([]string{"RDISTCC_CACHE=read"}, anyone.vars...), cmd("a.c")...); got.where != "cached:s3" {
		t.Fatalf("the attack does not work where nothing has to be signed: %+v", got)
	}
	for _, args := range [][]string{{"status"}, {"cache", "stats"}} {
		if out := s.says(anyone, args...); !strings.Contains(out, "unsigned: s3; whoever can write there") {
			t.Errorf("%s says\n%s", args, out)
		}
	}
	n := 0
	for what, entry := range map[string]func() ([]byte, error){
		"unsigned":                unsigned,
		"another result":          func() ([]byte, error) { return evil, nil },
		"another result, renamed": func() ([]byte, error) { return resultcache.Renamed(evil, other, key) },
		"the signature of the old one": func() ([]byte, error) {
			s, _, err := resultcache.Proof(good, key)
			if err != nil {
				return nil, err
			}
			b, err := unsigned()
			if err != nil {
				return nil, err
			}
			return resultcache.Sign(b, key, func([32]byte) ([]byte, error) { return s.Signature, nil })
		},
		"cut short": func() ([]byte, error) { return good[:len(good)-5], nil },
	} {
		put(entry())
		damaged := what == "another result" || what == "cut short"
		n++
		lines := func() int { return strings.Count(s.log(), "a kept result is not used") } // of all managers
		before := lines()
		victim := client("carol-"+string(rune('a'+n)), trusting(store.settings, ""))
		s.compilesWith("remote", victim.vars, cmd("a.c")...) // and the object is that of the plain command
		if got := lines() - before; got != map[bool]int{false: 1}[damaged] {
			t.Errorf("%s: %d lines:\n%s", what, got, s.log())
		}
		if !damaged {
			s.wait("the right result to be there again", func() bool {
				b := s.read(file)
				k, from, err := resultcache.Describe(b)
				return err == nil && k == key && from.Source == "a.c" && resultcache.IsSigned(b)
			})
			if out := s.says(victim, "cache", "stats"); !strings.Contains(out, "s3: 1 look had a result that nobody has signed") {
				t.Errorf("%s: cache stats says\n%s", what, out)
			}
		}
	}
	put(good, nil)
	s.compilesWith("cached:s3", client("dave-1", trusting(store.settings, "")).vars, cmd("a.c")...)
}

// TestDoctorOfStores: doctor says whose results are taken from a store.
func TestDoctorOfStores(t *testing.T) {
	s, client := underTLS(t)
	store := serveS3(t)
	for name, c := range map[string]struct{ list, want string }{
		"carol-0": {"", "s3: signed by machines of the farm\n"},
		"carol-1": {`"farm:ci", "not:dave"`, "s3: signed by ci, but not dave\n"},
		"carol-2": {"anyone", "s3: unsigned, as cache.trust says: whoever can write there can give this machine wrong objects\n"},
		"carol-3": {"/nowhere/ca.crt", "FAIL  stores      cache.trust: /nowhere/ca.crt: no such file or directory\n"},
	} {
		m := client(name, trusting(store.settings, c.list))
		cmd, _ := s.command(false, m.vars, s.Wrapper, "doctor")
		out, err := cmd.CombinedOutput()
		if _, failed := err.(*exec.ExitError); err != nil && !failed || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v\n%s", c.list, err, out)
		}
	}
}

// read returns a file's content.
func (s *site) read(name string) []byte {
	s.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		s.Fatal(err)
	}
	return b
}
