package migrate

import "strings"

// icecream returns what becomes of icecream's settings: those of its daemon, and variables.
func icecream(s *System) (all []Advice) {
	const noScheduler = "there is no scheduler: RDISTCC_HOSTS, `hosts` in config.yaml, or mdns+ name the hosts"
	conf := map[string]Advice{
		"ICECC_SCHEDULER_HOST": {"", "", noScheduler},
		"ICECC_NETNAME":        {"", "", noScheduler},
		"ICECC_MAX_JOBS":       {"", "daemon: {jobs: $}", "in config.yaml; unset, it is the number of cores"},
		"ICECC_NICE_LEVEL":     {"", "daemon: {nice: $}", "in config.yaml"},
		"ICECC_LOG_FILE":       {"", "log: {file: $}", "in config.yaml; systemd's journal otherwise"},
		"ICECC_ALLOW_REMOTE":   {"", "daemon: {allow: [NETWORK]}", "in config.yaml; a machine without rdistccd takes no jobs"},
		"ICECC_BASEDIR":        {"", "toolchains: {dir: $}", "in config.yaml; where compilers are kept that were sent"},
		"ICECC_CACHE_LIMIT":    {"", "toolchains: {size: $MiB}", "in config.yaml"},
	}
	for _, file := range []string{"/etc/icecc/icecc.conf", "/etc/default/icecc", "/etc/sysconfig/icecream"} {
		text, ok := s.Read(file)
		if !ok {
			continue
		}
		for line := range strings.Lines(text) {
			name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			value = strings.Trim(value, `"'`)
			if name = strings.Replace(name, "ICECREAM_", "ICECC_", 1); !ok || value == "" {
				continue
			}
			if a, known := conf[name]; known {
				a.Setting, a.Becomes = name+"="+shownWord(value)+" in "+file, strings.ReplaceAll(a.Becomes, "$", value)
				all = append(all, a)
			}
		}
	}
	return append(all, s.look([]variable{
		{"ICECC_VERSION", "", "compilers that hosts lack are sent to them, with all that they load", false},
		{"ICECC_PREFERRED_HOST", "RDISTCC_HOSTS=$", "for one command; the choice is by speed and load otherwise", false},
		{"ICECC_CC", "", "name the compiler in the command: rdistcc gcc-12", false},
		{"ICECC_CXX", "", "name the compiler in the command: rdistcc g++-12", false},
		{"ICECC_REMOTE_CPP", "", "hosts always preprocess", false},
		{"ICECC_IGNORE_UNVERIFIED", "", "a host without the compiler, by content, is sent it or gets no job", false},
		{"ICECC_EXTRAFILES", "", "files that an option names travel by themselves", false},
		{"ICECC_COLOR_DIAGNOSTICS", "", "messages are those of the local compiler, with its colours", false},
		{"ICECC_CARET_WORKAROUND", "diagnostics: fast", "in config.yaml: no second run here for messages; exact, which is the default, may run one", false},
		{"ICECC_REPEAT_RATE", "scheduler: {audit: 0.01}", "in config.yaml: the fraction of jobs that a second host compiles too", false},
		{"ICECC_DEBUG", "RDISTCC_VERBOSE=2", "", false},
		{"ICECC_LOGFILE", "RDISTCC_LOG=$", "", false},
		{"ICECC_SCHEDULER", "", noScheduler, false},
		{"USE_SCHEDULER", "", noScheduler, false},
		{"ICECC_TEST_REMOTEBUILD", "RDISTCC_MODE=remote", "", false},
	})...)
}
