package unit

import "testing"

func TestShared(t *testing.T) {
	const no = "-"
	for name, want := range map[string]string{
		"":                          "",
		"a.h":                       "a.h",
		"proc/self/cwd":             "proc/self/cwd",
		"/":                         "/",
		"/usr/include":              "/usr/include",
		"/process/self":             "/process/self",
		"/home/proc/self/cwd":       "/home/proc/self/cwd",
		"/dev/null":                 "/dev/null",
		"/dev/shm/x":                "/dev/shm/x",
		"/proc/self/cwd":            ".",
		"/proc/self/cwd/":           ".",
		"/proc/thread-self/cwd":     ".",
		"//proc/./self//cwd/.":      "./.",
		"/proc/self/cwd/inc/a.h":    "./inc/a.h",
		"/proc/self/cwd//inc":       "./inc",
		"/proc/self/cwd/../inc":     "./../inc",
		"/proc/self/cwdx":           no,
		"/proc":                     no,
		"/proc/cpuinfo":             no,
		"/proc/self":                no,
		"/proc/self/root/usr":       no,
		"/proc/self/fd/3":           no,
		"/proc/1/cwd":               no,
		"/proc/self/../self/cwd":    no,
		"/usr/../proc/self/cwd/inc": no,
		"/dev/fd":                   no,
		"/dev/fd/3":                 no,
		"/dev//./fd/3/inc":          no,
		"/dev/shm/../fd/3":          no,
	} {
		got, ok := Shared(name)
		if !ok {
			got = no
		}
		if got != want {
			t.Errorf("Shared(%q) is %q, want %q", name, got, want)
		}
	}
}
