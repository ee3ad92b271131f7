// Package migrate knows what settings of other programs become with rdistcc. It only tells; it changes nothing.
package migrate

import (
	"slices"
	"strings"
)

// Advice is what becomes of one setting of another program.
type Advice struct {
	Setting string // as it is here: NAME=VALUE, a file, or an option
	Becomes string // what to write instead; "": nothing
	Note    string // why, or what else to know; "": nothing
}

// System is where settings are.
type System struct {
	Getenv func(name string) (value string, set bool)
	Read   func(path string) (text string, ok bool) // a file's content
	Home   string
}

// program is another program whose settings are known.
type program struct {
	name  string
	look  func(s *System) []Advice // what is set here
	steps []string                 // what to do in any case
}

var programs = []program{
	{"distcc", distcc, []string{
		`on the farm's hosts: install rdistcc, write a key or certificates (rdistcc certs), and start rdistccd; distccd can go on beside it`,
		`in builds: CC="rdistcc gcc" in the place of CC="distcc gcc", or rdistcc install-links DIR for links on PATH`,
		`in the place of pump: nothing; rdistcc finds by itself what a compile reads`,
		`in the place of distccmon-text: rdistcc top; of distcc -j: rdistcc -j`,
	}},
	{"icecream", icecream, []string{
		`on the farm's hosts: install rdistcc, write a key or certificates (rdistcc certs), and start rdistccd --announce; iceccd can go on beside it`,
		`on build hosts: RDISTCC_HOSTS=mdns+ finds hosts on the local network; there is no scheduler to install, as each build host chooses`,
		`in builds: CC="rdistcc gcc", or rdistcc install-links DIR for links on PATH, in the place of /usr/lib/icecc/bin`,
		`in the place of icecc-create-env and ICECC_VERSION: nothing; compilers that hosts lack are sent to them (docs/farm.md)`,
		`in the place of icemon: rdistcc top, the pages of managers and daemons, or Grafana`,
	}},
	{"sccache", sccache, []string{
		`in builds: CMAKE_C_COMPILER_LAUNCHER=rdistcc and CMAKE_CXX_COMPILER_LAUNCHER=rdistcc, or CC="rdistcc gcc"; for Rust, sccache stays (RUSTC_WRAPPER)`,
		`in the place of sccache-dist: RDISTCC_HOSTS and rdistccd on the hosts (README.md)`,
		`in the place of sccache --show-stats: rdistcc cache stats; of --zero-statistics: nothing, stats are since the manager started`,
	}},
}

// Programs returns the names that From takes.
func Programs() (names []string) {
	for _, p := range programs {
		names = append(names, p.name)
	}
	return names
}

// From returns what becomes of the settings of a program that are in force here, and what to do in any case. ok is false if the
// program is not known.
func From(name string, s *System) (settings []Advice, steps []string, ok bool) {
	i := slices.IndexFunc(programs, func(p program) bool { return p.name == name })
	if i < 0 {
		return nil, nil, false
	}
	return programs[i].look(s), programs[i].steps, true
}

// variable says what becomes of an environment variable, whose value replaces $ in becomes. A secret one is not shown.
type variable struct {
	name, becomes, note string
	secret              bool
}

// look returns the advice about those variables that are set.
func (s *System) look(vars []variable) (all []Advice) {
	for _, v := range vars {
		value, set := s.Getenv(v.name)
		if !set {
			continue
		}
		shown := shownWord(value)
		if v.secret {
			shown = "..."
		}
		all = append(all, Advice{v.name + "=" + shown, strings.ReplaceAll(v.becomes, "$", shown), v.note})
	}
	return all
}

// shownWord returns a value as a shell takes it, without a password in an address.
func shownWord(value string) string {
	if scheme, rest, ok := strings.Cut(value, "://"); ok {
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			value = scheme + "://...@" + rest[at+1:]
		}
	}
	if value == "" || strings.ContainsAny(value, " \t\n'\"\\$&|;<>()*?#~`") {
		return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
	}
	return value
}
