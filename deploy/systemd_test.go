package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestUnits: systemd reads the units without a complaint, and finds them as hard as
// they can be made: what it still counts against them is what they are for.
func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		need.Skipf(t, need.Tools, "systemd-analyze is not installed (Debian package systemd)")
	}
	for _, u := range []struct {
		file    string
		most    float64 // exposure, 0 to 10, as systemd 252 counts; later ones count more
		written []string
	}{
		{"system/rdistccd.service", 2.6, []string{"NoNewPrivileges=yes", "CapabilityBoundingSet=", "DynamicUser=yes", "LoadCredential=psk:"}},
		{"system/rdistcc-cm.service", 2.5, []string{"NoNewPrivileges=yes", "CapabilityBoundingSet=", "RestrictNamespaces=yes"}},
	} {
		t.Run(u.file, func(t *testing.T) {
			prefix := t.TempDir()
			text, err := os.ReadFile(filepath.Join("systemd", u.file))
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range u.written {
				if !strings.Contains(string(text), w) {
					t.Errorf("%s is not there", w)
				}
			}
			program := filepath.Join(prefix, "bin", strings.TrimSuffix(filepath.Base(u.file), ".service"))
			unit := filepath.Join(prefix, filepath.Base(u.file))
			for name, content := range map[string]string{program: "#!/bin/sh\n", unit: strings.ReplaceAll(string(text), "@PREFIX@", prefix)} {
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(content), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(unit, 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", unit).CombinedOutput()
			if err != nil {
				t.Fatalf("systemd-analyze security: %v\n%s", err, out)
			}
			// What it does not understand it says, and leaves out.
			if strings.Contains(string(out), unit+":") {
				t.Errorf("systemd complains:\n%s", out)
			}
			m := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
			if m == nil {
				t.Fatalf("no exposure in\n%s", out)
			}
			got, err := strconv.ParseFloat(string(m[1]), 64)
			if err != nil || got > u.most {
				t.Errorf("exposure %s, want at most %.1f:\n%s", m[1], u.most, out)
			}
		})
	}
}
