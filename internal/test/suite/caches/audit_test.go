package caches

import (
	"os"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// falsify changes the object in the file of a result, whose sums are right then.
func (s *site) falsify(name string) {
	s.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		s.Fatal(err)
	}
	key, _, err := resultcache.Describe(b)
	if err != nil {
		s.Fatal(err)
	}
	e, err := resultcache.Decode(b, key, func(n int) ([]byte, error) { return make([]byte, n), nil })
	if err != nil {
		s.Fatal(err)
	}
	e.Files[0].Data[len(e.Files[0].Data)/2] ^= 1
	if b, err = e.Append(nil); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		s.Fatal(err)
	}
}

// TestAuditOfHits: a wrong result whose sums are right is found by compiling it again, and removed. Its host, which compiles
// correctly, is not blamed for what somebody has written in its name. Results of preprocessed text are audited like others.
func TestAuditOfHits(t *testing.T) {
	part.Skip(t)
	for form, daemon := range map[string]string{"sources": "", "text": "daemon: {tree: off}\n"} {
		t.Run(form, func(t *testing.T) { auditOfHits(t, startWith(t, "scheduler: {audit: 1}\n", daemon)) })
	}
}

func auditOfHits(t *testing.T, s *site) {
	t.Helper()
	s.write("a.c", "int x = 1;\n")
	s.compiles("remote", "gcc", "-c", "a.c")
	s.settle(1)
	name := s.kept()[0]
	s.compiles("cached:manager", "gcc", "-c", "a.c")
	s.wait("an audit", func() bool { return s.metric(s.Manager, `rdistcc_cm_audits_total{result="same"}`) == 1 })

	s.falsify(name)
	if got := s.run(nil, "gcc", "-c", "a.c"); got.where != "cached:manager" {
		t.Fatalf("%+v", got)
	}
	s.wait("the wrong result to be removed", func() bool { return len(s.kept()) == 0 })
	s.wait("the audit", func() bool { return s.metric(s.Manager, `rdistcc_cm_audits_total{result="differs"}`) == 1 })
	if n := s.metric(s.Manager, "rdistcc_cm_quarantines_total{"); n != 0 || !strings.Contains(s.log(), "a kept result is wrong, and removed") {
		t.Errorf("%v quarantines:\n%s", n, s.log())
	}
	s.compiles("remote", "gcc", "-c", "a.c")
}

// TestAuditOfSecondStep: a wrong result that the second step has found is removed, with its copy and what led to it.
func TestAuditOfSecondStep(t *testing.T) {
	s := start(t, "scheduler: {audit: 1}\n")
	cmd := s.unread()
	s.steps("remote", cmd...)
	s.listed(1)
	s.write("no.h", "int no1;\n")
	s.steps("second", cmd...)
	s.wait("an audit", func() bool { return s.metric(s.Manager, `rdistcc_cm_audits_total{result="same"}`) >= 1 })
	for _, name := range s.kept() {
		s.falsify(name)
	}
	s.write("no.h", "int no2;\n")
	if got := s.run(nil, cmd...); got.where != "cached:manager" {
		t.Fatalf("%+v", got)
	}
	s.wait("the audit", func() bool { return s.metric(s.Manager, `rdistcc_cm_audits_total{result="differs"}`) == 1 })
	// One of the three was not looked at: nothing leads to it any more.
	s.wait("the wrong results to be removed", func() bool { return len(s.kept()) == 1 && len(s.manifests()) == 0 })
	s.write("no.h", "int no3;\n")
	s.steps("remote", cmd...)
}
