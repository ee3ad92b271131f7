package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestAlerts: each alert fires when it should, and is quiet before.
func TestAlerts(t *testing.T) {
	part.Skip(t)
	if _, err := exec.LookPath("promtool"); err != nil {
		need.Skipf(t, need.Tools, "promtool is not installed (Debian package prometheus)")
	}
	if out, err := exec.Command("promtool", append([]string{"test", "rules"}, alertCases(t)...)...).CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}

// alertCases returns the files with cases for TestAlerts.
func alertCases(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	return files
}

// TestAlertsAreWhole: each alert has a case that makes it fire and one that keeps it quiet, and a section in the runbook, to
// which it points.
func TestAlertsAreWhole(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	rules, runbook := read("prometheus/rules.yml"), read("../docs/metrics.md")
	var cases strings.Builder
	for _, name := range alertCases(t) {
		cases.WriteString(read(name))
	}
	all := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(rules, -1)
	if len(all) < 10 {
		t.Fatalf("only %d alerts", len(all))
	}
	for _, m := range all {
		name := m[1]
		for what, pattern := range map[string]string{
			"that makes it fire":  `- alertname: ` + name + `\n +eval_time: \w+\n +exp_alerts:\n +- exp_labels:`,
			"that keeps it quiet": `- \{alertname: ` + name + `, eval_time: \w+\}`,
		} {
			if !regexp.MustCompile(pattern).MatchString(cases.String()) {
				t.Errorf("%s has no case %s", name, what)
			}
		}
		if !strings.Contains(runbook, "\n### "+name+"\n") {
			t.Errorf("%s has no section in docs/metrics.md", name)
		}
		if !strings.Contains(rules, "runbook_url: https://github.com/rdistcc/rdistcc/blob/main/docs/metrics.md#"+strings.ToLower(name)+"\n") {
			t.Errorf("%s does not point to its section", name)
		}
	}
}
