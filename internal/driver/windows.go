package driver

import (
	"slices"
	"strings"
)

// GCCsForWindows are the names of programs on PATH by which clang finds headers for Windows, as far as they are usual. Every clang looks
// for ARCH-w64-mingw32-gcc, with the architecture as the command has it, and for mingw32-gcc; from 15 on also for ARCH-w64-mingw32ucrt-gcc,
// and for the command's target before -gcc, as written and as clang writes it (x86_64-w64-windows-gnu).
var GCCsForWindows = func() []string {
	names := []string{"mingw32-gcc", "i386-mingw32-gcc", "i686-mingw32-gcc", "i586-mingw32msvc-gcc", "i386-pc-mingw32-gcc", "i686-pc-mingw32-gcc", "x86_64-pc-mingw32-gcc"}
	for _, arch := range [...]string{"x86_64", "i386", "i486", "i586", "i686", "aarch64", "arm64", "arm64ec", "arm", "armv7"} {
		for _, rest := range [...]string{"-w64-mingw32-gcc", "-w64-mingw32ucrt-gcc", "-w64-windows-gnu-gcc", "-pc-windows-gnu-gcc", "-unknown-windows-gnu-gcc"} {
			names = append(names, arch+rest)
		}
	}
	return names
}()

// IsOddGCCForWindows reports whether clang may find headers for Windows by a program of this name, though it is none of the usual ones.
func IsOddGCCForWindows(name string) bool {
	target, ok := strings.CutSuffix(name, "-gcc")
	return ok && (strings.Contains(target, "mingw") || strings.Contains(target, "windows") || strings.Contains(target, "win32")) &&
		!slices.Contains(GCCsForWindows, name)
}
