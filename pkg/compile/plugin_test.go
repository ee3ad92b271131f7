package compile

import (
	"strings"
	"testing"
)

// TestOptionsOfNoPlugin: what a plugin is told keeps a command here, in which nothing loads a plugin.
func TestOptionsOfNoPlugin(t *testing.T) {
	for line, reason := range map[string]string{
		"-fplugin-arg-x=y -c a.c":                                 "not-reproducible:plugin",
		"-fplugin=annobin -fplugin-arg-annobin-mode=seven -c a.c": "",
		"-c a.c": "",
	} {
		if p := Parse(strings.Fields(line), Driver{Family: GCC}, nil); p.Reason != reason {
			t.Errorf("%s: %q, want %q", line, p.Reason, reason)
		}
	}
}
