package migrate

import (
	"fmt"
	"strings"
)

// distcc returns what becomes of distcc's settings: the host list, which rdistcc reads, and variables.
func distcc(s *System) (all []Advice) {
	if list, set := s.Getenv("DISTCC_HOSTS"); set {
		all = append(all, hosts("DISTCC_HOSTS", list)...)
	} else {
		var files []string
		if dir, set := s.Getenv("DISTCC_DIR"); set && dir != "" {
			files = append(files, dir+"/hosts")
		}
		for _, file := range append(files, s.Home+"/.distcc/hosts", "/etc/distcc/hosts") {
			if text, ok := s.Read(file); ok {
				all = append(all, hosts(file, text)...)
				break
			}
		}
	}
	return append(all, s.look([]variable{
		{"DISTCC_VERBOSE", "RDISTCC_VERBOSE=2", "a line for each command", false},
		{"DISTCC_LOG", "RDISTCC_LOG=$", "", false},
		{"DISTCC_FALLBACK", "", "rdistcc reads it; its own is RDISTCC_FALLBACK", false},
		{"DISTCC_BACKOFF_PERIOD", "", "rdistcc reads it; its own is RDISTCC_BACKOFF_PERIOD", false},
		{"DISTCC_IO_TIMEOUT", "RDISTCC_IO_TIMEOUT=$", "", false},
		{"DISTCC_SKIP_LOCAL_RETRY", "RDISTCC_SKIP_LOCAL_RETRY=$", "", false},
		{"DISTCC_PAUSE_TIME_MSEC", "", "a command waits for a free place as long as that is sooner than compiling here", false},
		{"DISTCC_SAVE_TEMPS", "", "there are no temporary files here", false},
		{"DISTCC_TCP_CORK", "", "what belongs together is written at once", false},
		{"DISTCC_SSH", "", "rdistcc speaks no ssh: a key or certificates protect its connections (docs/farm.md)", false},
		{"DISTCC_POTENTIAL_HOSTS", "", "hosts that are down cost nothing: list them all", false},
		{"DISTCC_ENABLE_DISCREPANCY_EMAIL", "", "scheduler.audit compares results, and an alert reports the host", false},
		{"DISTCC_CMDLIST", "", "daemons run the compilers that they find in toolchains.dirs", false},
	})...)
}

// hosts returns what becomes of a host list.
func hosts(where, text string) (all []Advice) {
	all = append(all, Advice{where, "", "rdistcc reads it, unless RDISTCC_HOSTS or a list of its own says otherwise"})
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		for _, word := range strings.Fields(line) {
			name, options, _ := strings.Cut(word, ",")
			name, places, _ := strings.Cut(name, "/")
			host, port, _ := strings.Cut(name, ":")
			switch {
			case strings.HasPrefix(word, "--"):
			case strings.Contains(name, "@"):
				all = append(all, Advice{word, strings.TrimPrefix(name[strings.IndexByte(name, '@'):], "@"),
					"rdistcc speaks no ssh: a key or certificates protect its connections (docs/farm.md)"})
			case port == "3632":
				becomes := host
				if places != "" {
					becomes += "/" + places
				}
				all = append(all, Advice{word, becomes, fmt.Sprintf("%s is distccd's port; rdistccd has 7632, which need not be said", port)})
			case options != "":
				all = append(all, Advice{word, "", "lzo, cpp and auth mean nothing to rdistcc: it compresses where that is sooner"})
			}
		}
	}
	return all
}
