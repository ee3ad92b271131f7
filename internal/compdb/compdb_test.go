package compdb

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	const dir, file = `"directory": "/b"`, `"file": "/s/a.c"`
	for text, want := range map[string]string{
		`[{` + dir + `, ` + file + `, "command": "cc -c /s/a.c"}]`:                                              "/b|cc|-c|/s/a.c",
		"[\n{\n" + dir + ",\n" + `"command": "cc  -c /s/a.c ", ` + file + ", \"output\": \"x\"\n}\n]\n":         "/b|cc|-c|/s/a.c",
		`[{` + dir + `,` + file + `,"arguments":["cc","-D A=\"x\\y\"",""]}]`:                                    `/b|cc|-D A="x\y"|`,
		`[{` + dir + `,` + file + `,"command":"cc -DA=\\\"x\\\" '-DB=a b\\' \"-DC=\\\"d e\\\"\" x\"y z\"'w'"}]`: `/b|cc|-DA="x"|-DB=a b\|-DC="d e"|xy zw`,
		`[{` + dir + `,"file":"/s/b.c","command":"cc"},{` + dir + `,` + file + `,"command":"gcc"}]`:             "/b|gcc",
		// Files that clang does not take, or may take for something else.
		`[]`: "",
		``:   "",
		`[{` + dir + `,` + file + `,"command":"cc"}`:                                                    "",
		`[{` + dir + `,` + file + `,"command":"cc"}] x`:                                                 "",
		`[{` + dir + `,` + file + `,"command":"cc"},]`:                                                  "",
		`[{` + dir + `,` + file + `,"command":"cc",}]`:                                                  "",
		`[{` + dir + `,` + file + `,"command":"cc","more":"x"}]`:                                        "",
		`[{` + dir + `,` + file + `,"command":"cc","command":"gcc"}]`:                                   "",
		`[{` + dir + `,` + file + `,"command":"cc","arguments":["cc"]}]`:                                "",
		`[{` + dir + `,` + file + `}]`:                                                                  "",
		`[{` + file + `,"command":"cc"}]`:                                                               "",
		`[{` + dir + `,` + file + `,"command":"cc \t"}]`:                                                "",
		`[{` + dir + `,` + file + `,"command":"cc \u0041"}]`:                                            "",
		`[{` + dir + `,` + file + `,"command":"cc é"}]`:                                                 "",
		"[{" + dir + "," + file + ",\t\"command\":\"cc\"}]":                                             "",
		`[{` + dir + `,` + file + `,"command":"cc ''"}]`:                                                "",
		`[{` + dir + `,` + file + `,"command":"cc 'x"}]`:                                                "",
		`[{` + dir + `,` + file + `,"command":"cc x\\"}]`:                                               "",
		`[{` + dir + `,` + file + `,"command":"cc"},{` + dir + `,` + file + `,"command":"cc"}]`:         "",
		`[{` + dir + `,` + file + `,"command":"cc"},{` + dir + `,"file":"/s/../s/a.c","command":"cc"}]`: "",
		`[{` + dir + `,` + file + `,"command":"cc"},{` + dir + `,"file":"../s//a.c","command":"cc"}]`:   "",
		`[{` + dir + `,"file":"../s/a.c","command":"cc"}]`:                                              "",
		`[{` + dir + `,"file":"/s/aa.c","command":"cc"}]`:                                               "",
		`[{` + dir + `,"file":["/s/a.c"],"command":"cc"}]`:                                              "",
		`{"a": [{` + dir + `,` + file + `,"command":"cc"}]}`:                                            "",
		`[{` + dir + `,` + file + `,"command":"cc"}][{` + dir + `,"file":"/s/b.c","command":"cc"}]`:     "",
		strings.Repeat("[", 1<<20):                                                                      "",
	} {
		got := ""
		if e, ok := Find(text, "/s/a.c"); ok {
			got = e.Directory + "|" + strings.Join(e.Words, "|")
		}
		if got != want {
			t.Errorf("%.200s: %q, want %q", text, got, want)
		}
	}
}

// FuzzFind: what is found is what the text says by the rules of JSON, and is there once.
func FuzzFind(f *testing.F) {
	f.Add(`[{"directory":"/b","file":"/s/a.c","arguments":["cc","-D\"x\\"]},{"directory":"/","file":"b","command":"cc"}]`)
	f.Add(`[ {"output" : "x", "directory": "/b", "file": "/s/a.c", "command": "cc '-c' \"x\""}]`)
	f.Fuzz(func(t *testing.T, text string) {
		e, ok := Find(text, "/s/a.c")
		if !ok {
			return
		}
		var all []struct {
			Directory, File, Command, Output string
			Arguments                        []string
		}
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		n := 0
		for _, x := range all {
			if x.File != "/s/a.c" {
				continue
			}
			n++
			words := x.Arguments
			if words == nil {
				words, _ = Split(x.Command)
			}
			if e.Directory != x.Directory || !slices.Equal(e.Words, words) {
				t.Errorf("%q: %q, want %q", text, e, x)
			}
		}
		if n != 1 {
			t.Errorf("%q: %d entries", text, n)
		}
	})
}
