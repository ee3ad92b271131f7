package compile

import (
	"strings"
	"testing"
)

// TestRules: a command's rules for make tell what it has read, unless something may be missing from them.
func TestRules(t *testing.T) {
	gcc, clang := Driver{Family: GCC}, Driver{Family: Clang}
	for _, c := range []struct {
		driver Driver
		args   string
		want   string // "all", "user", or ""
	}{
		{gcc, "-MD -c a.c", "all"},
		{gcc, "--write-dependencies -c a.c", "all"},
		{gcc, "-MMD -c a.c", "user"},
		{gcc, "-MD -MMD -c a.c", "user"},
		{gcc, "-MMD -MD -c a.c", "user"},
		{gcc, "--write-user-dependencies -c a.c", "user"},
		{gcc, "-MD -MP -MT t -MQ u -MF x.d -c a.c -o a.o", "all"},
		{gcc, "-MD -MFx.d -c a.c", "all"},
		{gcc, "-Wp,-MMD,x.d -c a.c", "user"},
		{gcc, "-Wp,-MD,x.d -c a.c", "user"},
		{clang, "-Wp,-MD,x.d -c a.c", "user"},
		{clang, "-MD -MP -c a.c", "all"},
		{clang, "-MMD -c a.c", "user"},
		{gcc, "-MD -Wp,-DX -c a.c", "user"},
		{gcc, "-c a.c", ""},
		{gcc, "-MD -MF /dev/null -c a.c", ""},
		{gcc, "-MD -MG -c a.c", ""},
		{gcc, "-MD -MF x.d -Wp,-MMD,y.d -c a.c", ""}, // two
		{gcc, "-Xpreprocessor -MD -Xpreprocessor x.d -c a.c", ""},
		{gcc, "-MD -finput-charset=latin1 -c a.c", ""},
		{gcc, "-MD -fpreprocessed -c a.c", ""},
		{gcc, "-MD -traditional-cpp -c a.c", ""},
		{gcc, "-MD -fmodules-ts -c a.cc", ""},
		{clang, "-MD -fmodules -c a.c", ""},
		{clang, "-MD -fmodule-file=A=a.pcm -c a.cc", ""},
		{clang, "-MD -fprebuilt-module-path=bmi -c a.cc", ""},
		{clang, "-MD -Xclang -discard-value-names -c a.c", ""},
		{clang, "-MD -include-pch x.pch -c a.c", ""},
		{gcc, "-MD @words -c a.c", ""},
		{clang, "-MMD --system-header-prefix=sys/ -c a.c", ""}, // it hides headers of any directory
		{clang, "-MD --system-header-prefix=sys/ -c a.c", "all"},
		{clang, "-MMD --no-system-header-prefix=sys/ -c a.c", ""},
		{clang, "-MMD -DP=_Pragma(\"GCC\\x20system_header\") -c a.c", ""},
		{clang, "-Wp,-MMD,x.d -Wp,-DP=_Pragma(X) -c a.c", ""},
		{gcc, "-MMD -O2 -g -std=c11 -Wall -fPIC -march=native -pthread -pipe -DX -UY -Ii -isystem s -c a.c", "user"},
		{clang, "-MMD -O2 -g -std=c11 -Wall -fPIC --target=x86_64-linux-gnu -Qunused-arguments -pthread -pipe -DX -Ii -isystem s -c a.c", "user"},
	} {
		p := Parse(strings.Fields(c.args), c.driver, nil)
		r, ok := p.Rules()
		got := ""
		if ok {
			got = map[bool]string{true: "all", false: "user"}[r.All]
			if name := p.Outputs[r.Output].Name; !strings.HasSuffix(name, ".d") {
				t.Errorf("%s: rules in %s", c.args, name)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
}
