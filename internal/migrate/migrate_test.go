package migrate

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// system returns a System with these variables and files.
func system(vars, files map[string]string) *System {
	return &System{Home: "/home/u",
		Getenv: func(name string) (string, bool) { v, ok := vars[name]; return v, ok },
		Read:   func(path string) (string, bool) { v, ok := files[path]; return v, ok }}
}

func TestFrom(t *testing.T) {
	for _, c := range []struct {
		program     string
		vars, files map[string]string
		want        []string // SETTING -> BECOMES
	}{
		{"distcc", nil, nil, nil},
		{"distcc", map[string]string{"DISTCC_HOSTS": "a/8 b:3632/4,lzo user@c --randomize d,cpp", "DISTCC_VERBOSE": "1", "DISTCC_IO_TIMEOUT": "60"},
			map[string]string{"/home/u/.distcc/hosts": "not read"},
			[]string{"DISTCC_HOSTS -> ", "b:3632/4,lzo -> b/4", "user@c -> c", "d,cpp -> ", "DISTCC_VERBOSE=1 -> RDISTCC_VERBOSE=2", "DISTCC_IO_TIMEOUT=60 -> RDISTCC_IO_TIMEOUT=60"}},
		{"distcc", map[string]string{"DISTCC_DIR": "/d"}, map[string]string{"/d/hosts": "a # @b\n", "/etc/distcc/hosts": "x"}, []string{"/d/hosts -> "}},
		{"icecream", map[string]string{"ICECC_DEBUG": "debug"}, map[string]string{"/etc/icecc/icecc.conf": "# x\nICECC_MAX_JOBS=\"12\"\nICECC_NETNAME=\nICECC_OTHER=1\nnonsense\n"},
			[]string{"ICECC_MAX_JOBS=12 in /etc/icecc/icecc.conf -> daemon: {jobs: 12}", "ICECC_DEBUG=debug -> RDISTCC_VERBOSE=2"}},
		{"icecream", nil, map[string]string{"/etc/sysconfig/icecream": "ICECREAM_NICE_LEVEL=\"5\"\n"}, []string{"ICECC_NICE_LEVEL=5 in /etc/sysconfig/icecream -> daemon: {nice: 5}"}},
		{"sccache", map[string]string{"SCCACHE_BUCKET": "b", "SCCACHE_REDIS": "redis://u:hunter2@h:1/0", "SCCACHE_REDIS_PASSWORD": "hunter2", "SCCACHE_DIR": "/a b"},
			map[string]string{"/home/u/.config/sccache/config": ""},
			[]string{"/home/u/.config/sccache/config -> ", "SCCACHE_DIR='/a b' -> cache: {dir: NEW}", "SCCACHE_BUCKET=b -> cache: {s3: {bucket: b}}",
				"SCCACHE_REDIS=redis://...@h:1/0 -> cache: {redis: {url: redis://...@h:1/0}}",
				"SCCACHE_REDIS_PASSWORD=... -> RDISTCC_REDIS_PASSWORD, or cache: {redis: {password-file: FILE}}"}},
	} {
		all, steps, ok := From(c.program, system(c.vars, c.files))
		var got []string
		for _, a := range all {
			got = append(got, a.Setting+" -> "+a.Becomes)
			if strings.Contains(a.Setting+a.Becomes+a.Note, "hunter2") {
				t.Errorf("a password is shown: %+v", a)
			}
			if a.Becomes == "" && a.Note == "" {
				t.Errorf("%s: nothing is said", a.Setting)
			}
		}
		if !ok || !slices.Equal(got, c.want) || len(steps) == 0 {
			t.Errorf("%s with %v:\n%q, want\n%q", c.program, c.vars, got, c.want)
		}
	}
	if _, _, ok := From("ccontrol", system(nil, nil)); ok {
		t.Error("took a program that it does not know")
	}
}

// TestAdviceNamesWhatThereIs: all that is advised are settings that rdistcc has.
func TestAdviceNamesWhatThereIs(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	settings, usage := read("../../deploy/config.yaml"), read("../../docs/usage.md")
	every := system(nil, map[string]string{"/etc/icecc/icecc.conf": "ICECC_MAX_JOBS=1\nICECC_NICE_LEVEL=1\nICECC_LOG_FILE=f\nICECC_ALLOW_REMOTE=yes\nICECC_BASEDIR=d\nICECC_CACHE_LIMIT=1\n"})
	every.Getenv = func(string) (string, bool) { return "1", true }
	n := 0
	for _, name := range Programs() {
		all, _, _ := From(name, every)
		for _, a := range all {
			for _, word := range strings.FieldsFunc(a.Becomes, func(r rune) bool { return strings.ContainsRune(" {},=", r) }) {
				switch key, isKey := strings.CutSuffix(word, ":"); {
				case strings.HasPrefix(word, "RDISTCC_") && !strings.Contains(usage, "`"+word):
					t.Errorf("%s: there is no variable %s", a.Setting, word)
				case isKey && !strings.Contains(settings, "\n"+key+":") && !strings.Contains(settings, " "+key+":"):
					t.Errorf("%s: there is no setting %s", a.Setting, key)
				case isKey, strings.HasPrefix(word, "RDISTCC_"):
					n++
				}
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d names were looked at", n)
	}
}
