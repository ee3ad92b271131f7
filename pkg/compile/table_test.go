package compile

import (
	"slices"
	"strings"
	"testing"
)

func TestTableSorted(t *testing.T) {
	for _, rows := range [][]spec{table[:], longTable[:]} {
		for i := 1; i < len(rows); i++ {
			if rows[i-1].name >= rows[i].name {
				t.Errorf("table: %q stands before %q", rows[i-1].name, rows[i].name)
			}
		}
	}
	for _, list := range []string{fFlags, mFlags} {
		names := strings.Fields(list)
		if !slices.IsSorted(names) {
			for i := 1; i < len(names); i++ {
				if names[i-1] > names[i] {
					t.Errorf("flags: %q stands before %q", names[i-1], names[i])
				}
			}
		}
		if len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Error("flags: a name stands there twice")
		}
	}
}

func TestFindAgreesWithLinearSearch(t *testing.T) {
	words := []string{"-", "-f", "-fno-", "-W", "-Wall", "-Wp,-MD,x", "-MDx", "-MFx", "-M", "-MMD", "-MM", "-cc", "-c", "-std", "-std=c11",
		"-gsplit-dwarf=single", "-g", "-g4", "-ggdb3", "-isystem", "-isystemfoo", "-isystem-afterx", "-iwithprefixbeforex", "--sysroot", "--sysroot=/", "--sysrootx"}
	var rows []*spec
	for i := range table {
		rows = append(rows, &table[i])
	}
	for i := range longTable {
		rows = append(rows, &longTable[i])
	}
	for _, row := range rows {
		words = append(words, row.name, row.name+"x", row.name+"=1", row.name[:len(row.name)-1])
	}
	for _, w := range words {
		var want *spec
		for _, row := range rows {
			if row.takes(w) && (want == nil || len(row.name) > len(want.name)) {
				want = row
			}
		}
		got := find(w)
		if want != nil && got != want {
			t.Errorf("find(%q) = %v, want row %q", w, got, want.name)
		}
	}
}

func TestFlagLists(t *testing.T) {
	for _, list := range []string{fFlags, mFlags} {
		for _, name := range strings.Fields(list) {
			if !isFlag(list, name) || !isFlag(list, "no-"+name) || isFlag(list, strings.TrimSuffix(name, "=")+"~=y") {
				t.Errorf("%q: not found, or found where it is not", name)
			}
		}
		for _, name := range []string{"", "no-", " ", "no", "zzz", "!", "=", "align-functions ", "\x00"} {
			if isFlag(list, name) {
				t.Errorf("%q: found", name)
			}
		}
	}
}
