package worker

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ownLibraries returns the file names of the shared libraries that this program needs to start, sorted; none
// if it is static. With the provider ibverbs it is dynamic, and a canary's probe is this program. Compiles
// see these files too, because a canary runs in the same tree as jobs.
var ownLibraries = sync.OnceValue(func() []string {
	_, wanted := needed("/proc/self/exe")
	if len(wanted) == 0 {
		return nil
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil
	}
	mapped := make(map[string]string) // a library's soname to its file
	for line := range bytes.Lines(maps) {
		if _, path, ok := strings.Cut(strings.TrimSuffix(string(line), "\n"), "/"); ok && strings.Contains(path, ".so") {
			if name, _ := needed("/" + path); name != "" {
				mapped[name] = "/" + path
			}
		}
	}
	var files []string
	for len(wanted) > 0 { // other mapped libraries were loaded at run time
		name := wanted[0]
		wanted = wanted[1:]
		file, ok := mapped[name]
		if !ok {
			continue
		}
		delete(mapped, name)
		_, more := needed(file)
		wanted = append(wanted, more...)
		// The dynamic linker looks for the soname in the directory, which is usually a symbolic link.
		if link := filepath.Join(filepath.Dir(file), name); same(link, file) {
			file = link
		}
		files = append(files, file)
	}
	slices.Sort(files)
	return files
})

// libraryDirs returns the directories of files in the format of LD_LIBRARY_PATH.
func libraryDirs(files []string) string {
	var dirs []string
	for _, f := range files {
		if d := filepath.Dir(f); !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	return strings.Join(dirs, ":")
}

// needed returns the soname of a program or library, and the sonames of the libraries that it needs.
func needed(file string) (name string, libraries []string) {
	f, err := elf.Open(file)
	if err != nil {
		return "", nil
	}
	defer f.Close()
	if names, err := f.DynString(elf.DT_SONAME); err == nil && len(names) > 0 {
		name = names[0]
	}
	libraries, _ = f.ImportedLibraries() // a static program has none
	return name, libraries
}

// same reports whether two names are of one file.
func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
