package compile

import (
	"strings"
	"syscall"
)

// specsAmongLibraries reports whether a gcc would read rules for its driver (-specs) from a directory of LIBRARY_PATH, or of LPATH,
// which it heeds alike: DIR/specs, or DIR/TARGET/VERSION/specs. It looks there as for a link, whatever it does. clang does not.
func (p *parser) specsAmongLibraries(getenv func(string) (string, bool)) bool {
	if p.Driver.Family != GCC {
		return false
	}
	for _, name := range LibraryVariables {
		if list, set := getenv(name); set && specsAmong(list) {
			return true
		}
	}
	return false
}

// LibraryVariables lists the variables by which compilers look for libraries in further directories.
var LibraryVariables = [...]string{"LIBRARY_PATH", "LPATH"}

// specsAmong reports whether one of the directories of a list has such a file.
func specsAmong(list string) bool {
	for dir := range strings.SplitSeq(list, ":") {
		if dir == "" {
			dir = "."
		}
		if isThere(dir + "/specs") {
			return true
		}
		for _, target := range namesIn(dir) {
			if !strings.Contains(target, "-") || strings.Contains(target, ".so") || strings.HasSuffix(target, ".a") {
				continue
			}
			for _, version := range namesIn(dir + "/" + target) {
				if isThere(dir + "/" + target + "/" + version + "/specs") {
					return true
				}
			}
		}
	}
	return false
}

func isThere(name string) bool { return syscall.Access(name, 0) == nil }

// namesIn returns the names in a directory; none if it cannot be read.
func namesIn(dir string) (names []string) {
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	var buf [4096]byte
	for {
		n, err := syscall.ReadDirent(fd, buf[:])
		if err != nil || n <= 0 {
			return names
		}
		_, _, names = syscall.ParseDirent(buf[:n], -1, names)
	}
}
