package compile

import (
	"slices"
	"strings"
)

// sanitizerLists names the lists that clang reads by itself for a sanitizer, if they exist, by what comes before
// "_ignorelist.txt", or "_blacklist.txt" up to clang 12.
var sanitizerLists = [...]string{"asan", "cfi", "hwasan", "memtag", "msan", "nsan", "rtsan", "tsan", "tysan", "ubsan"}

// SanitizerLists returns the files that clang may read by itself for a sanitizer, given its own directories for headers,
// whether they exist or not. It returns nil if clang's directory is not among them.
func SanitizerLists(own []string) (names []string) {
	share := ""
	for _, dir := range own {
		if version, ok := strings.CutSuffix(dir, "/include"); ok && strings.HasSuffix(version[:strings.LastIndexByte(version, '/')+1], "/clang/") {
			share = version + "/share"
		}
	}
	if share == "" {
		return nil
	}
	for _, name := range sanitizerLists {
		names = append(names, share+"/"+name+"_ignorelist.txt", share+"/"+name+"_blacklist.txt")
	}
	names = append(names, share+"/dfsan_abilist.txt")
	there, _ := ListDir(share) // a later clang may have others
	for _, name := range there {
		if name = share + "/" + name; strings.HasSuffix(name, "list.txt") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
