package policy

import (
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

var tidyTool = Compiler{Family: "clang-tidy", Major: 14, Exec: "/usr/bin/clang-tidy-14", Path: "/usr/lib/llvm-14/bin/clang-tidy"}

// TestTidy: which jobs for clang-tidy a host takes.
func TestTidy(t *testing.T) {
	for name, c := range map[string]struct {
		args   string
		config string // of /src/.clang-tidy
		links  string
		ok     bool
	}{
		"plain":                     {"--checks=* --config={} a.c -- -Wall", "", "", true},
		"a configuration":           {"a.c --", "Checks: '*'", "", true},
		"a file with configuration": {"--config-file=.clang-tidy a.c --", "Checks: '*'", "", true},
		"fixes":                     {"--export-fixes=f.yaml a.c -- cc -o x -c a.c", "", "", true},
		"another link":              {"a.c --", "Checks: '*'", "/other", true},
		"more words":                {"a.c --", "ExtraArgs: [-fplugin=x.so]", "", false},
		"more words, disguised":     {"a.c --", `"Ext\x72aArgs": [-fplugin=x.so]`, "", false},
		"more words on the command": {"--config={ExtraArgs:[-fplugin=x]} a.c --", "", "", false},
		"a link":                    {"a.c --", "", "/src/.clang-tidy", false},
		"a link on the way":         {"--config-file=/l/f a.c --", "", "/l", false},
		"a file that is not there":  {"--config-file=f a.c --", "", "", false},
		"a plugin":                  {"--load=x.so a.c --", "", "", false},
		"a plugin of clang's":       {"a.c -- -Xclang -load -Xclang x.so", "", "", false},
		"by an extra word":          {"--extra-arg=-fplugin=x.so a.c --", "", "", false},
		"a response file":           {"a.c -- @x", "", "", false},
		"another overlay":           {"--vfsoverlay=x a.c --", "", "", false},
		"changes to sources":        {"--fix a.c --", "", "", false},
		"a list of commands":        {"a.c", "", "", false},
	} {
		b := sourcesBody(tidyTool, strings.Fields(c.args)...)
		text := [][]byte{three}
		if c.config != "" {
			// A hard link to another file has the content of that.
			b.Files = append(b.Files, unit.File{Name: "/src/x", Len: uint64(len(c.config))}, unit.File{Name: "/src/.clang-tidy", Same: 2})
			text = append(text, []byte(c.config), nil)
		}
		if c.links != "" {
			b.Links = []unit.Link{{Name: c.links, Target: "/src"}}
		}
		_, err := Sources(b, tidyTool, text)
		if c.ok && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !c.ok {
			wantRefused(t, err, name)
		}
	}
	wantRefused(t, Text(&job.Body{Argv0: "cc", Name: "a.c", Language: "c", Outputs: []unit.Output{{Name: "a.o"}}}, tidyTool, nil), "text")
	if _, err := TidyVariables([]string{"USER=anna", "LANG=C"}); err != nil {
		t.Error(err)
	}
	for _, kv := range []string{"USER=a b", "LD_PRELOAD=x"} {
		_, err := TidyVariables([]string{kv})
		wantRefused(t, err, kv)
	}
	_, err := SourcesVariables([]string{"USER=anna"})
	wantRefused(t, err, "USER for a compile")
}
