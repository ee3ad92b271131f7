package sources

import (
	"strings"
	"testing"
)

// TestImports: wherever a text may import a header, its name is found, or the word that may stand for it.
func TestImports(t *testing.T) {
	for text, want := range map[string]string{
		"import \"x.h\";\nexport import <y>;":                  "\"x.h <y",
		"int a; import/* */\\\n <y>;}import\n// z\n\"x.h\";":   "<y \"x.h",
		"import a.b : c;\nimport :p;\nimport M;":               "a b c p M",
		"#import \"x.h\"\n # import <y>\n@import Foo;":         "",
		"important import_x; ximport \"x.h\"; reimport <y>":    "",
		"#define I import\nI \"x.h\";":                         "unsure",
		"#define I(x) \\\n  import x\nI(\"x.h\");":             "unsure",
		"%:define I import \"x.h\";":                           "\"x.h",
		"import H(x);":                                         "H unsure",
		"import \\u0041;":                                      "unsure",
		"import \"x.h\nimport <y\nimport \"\"; import; import": "",
		"we import the word":                                   "the",
	} {
		var got []string
		unsure := Imports([]byte(text), func(i Include) {
			switch {
			case i.Computed:
				got = append(got, i.Macro)
			case i.Quoted:
				got = append(got, "\""+i.Name)
			default:
				got = append(got, "<"+i.Name)
			}
		})
		if unsure {
			got = append(got, "unsure")
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q: %s, want %s", text, s, want)
		}
	}
}
