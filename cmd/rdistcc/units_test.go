package main

import (
	"strings"
	"testing"
)

// TestOnlyUnits: nothing but clang's warnings about header units counts as these.
func TestOnlyUnits(t *testing.T) {
	one := "d/m.cc:1:1" + unitWarning + "\n    1 | import \"x.h\";\n      | ^\n"
	two := "./x.h:112:8" + unitWarning + "\n  112 | export import <vector>; // a | b\n      |        ^\n"
	for _, good := range []string{one + "1 warning generated.\n", one + two + "2 warnings generated.\n", two + one + one + "3 warnings generated.\n",
		"In file included from m.cc:1:\nIn file included from k.h:2:\n" + one + "1 warning generated.\n",
	} {
		if !onlyUnits([]byte(good)) {
			t.Errorf("not taken:\n%s", good)
		}
	}
	for _, bad := range []string{
		"", "\n", one, "1 warning generated.\n", one + "1 warning generated.", one + "1 error generated.\n",
		one + "1 warning generated.\n1 warning generated.\n",
		"In file included from m.cc:1: x\n" + one + "1 warning generated.\n", "In file included from m.cc:1:\n1 warning generated.\n",
		one + "m.cc:2:1: note: x\n" + "1 warning generated.\n",
		one + "m.cc:2:1: warning: unused [-Wunused]\n    2 | int x;\n      |     ^\n2 warnings generated.\n",
		strings.Replace(one, "1 |", "x |", 1) + "1 warning generated.\n",
		strings.Replace(one, "^", "~~^", 1) + "1 warning generated.\n",
		strings.Replace(one, "d/m.cc:1:1", "d/m.cc", 1) + "1 warning generated.\n",
		strings.Replace(one, "      | ^", "      | ^\n      | fix", 1) + "1 warning generated.\n",
		strings.Replace(one, "import", "\x1b[0mimport", 1) + "\x1b[0m1 warning generated.\n",
	} {
		if onlyUnits([]byte(bad)) {
			t.Errorf("taken:\n%s", bad)
		}
	}
}
