package compile

import (
	pathname "path"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// changedByEnvironment reports whether a variable is set that changes what the
// compiler proper or the driver does. Variables that only add header directories,
// such as CPATH, do not count: they only affect the half that runs here.
func (p *parser) changedByEnvironment(getenv func(string) (string, bool)) bool {
	if getenv == nil {
		return false
	}
	lists := [][]string{gccVariables[:], locales[:]}
	switch p.Driver.Family {
	case GCC:
		if p.movedByEnvironment(getenv) || anySet(appleVariables[:], getenv) && p.Driver.mayBeForDarwin() {
			return true
		}
	case Clang:
		lists = [][]string{clangVariables[:], appleVariables[:], locales[:]}
		if p.Driver.targeted || p.targeted() {
			lists = append(lists, targetVariables[:])
		}
		if p.foundByPath(getenv) {
			return true
		}
	}
	for _, names := range lists {
		if anySet(names, getenv) {
			return true
		}
	}
	for _, name := range travelling {
		if value, set := getenv(name); set && !FitsEnvironment(name, value) {
			return true
		}
	}
	return false
}

// anySet reports whether one of the variables is set.
func anySet(names []string, getenv func(string) (string, bool)) bool {
	return slices.ContainsFunc(names, func(name string) bool { _, set := getenv(name); return set })
}

// movedByEnvironment reports whether a variable makes a gcc look for headers, its programs and spec files in another directory than
// that which it was built for. Modules of clusters set such variables to the latter, below which the gcc itself is.
func (p *Plan) movedByEnvironment(getenv func(string) (string, bool)) bool {
	for _, name := range roots {
		if dir, set := getenv(name); set && (dir == "" || strings.TrimRight(dir, "/") != p.Driver.above) {
			return true
		}
	}
	return false
}

// hostPath is the PATH with which hosts run compilers.
var hostPath = [...]string{"/usr/local/bin", "/usr/bin", "/bin"}

// foundByPath reports whether a clang that compiles for Windows may find headers by a program that a host does not find on its PATH, or
// finds elsewhere: beside a mingw's gcc, or beside Microsoft's compiler. One beside clang itself does not count, as without it clang
// looks in the same place.
func (p *Plan) foundByPath(getenv func(string) (string, bool)) bool {
	if !p.Driver.targeted && !p.forWindows() {
		return false
	}
	list, set := getenv("PATH")
	if !set {
		return false
	}
	path, local := strings.Split(list, ":"), false
	for _, dir := range path {
		switch {
		case !strings.HasPrefix(dir, "/"):
			return true // where it leads depends on the working directory
		case slices.Contains(hostPath[:], dir):
			if slices.ContainsFunc(namesIn(dir), driver.IsOddGCCForWindows) {
				return true // no compiler's identity tells whether it is there
			}
			local = local || dir == hostPath[0]
			if local {
				continue
			}
			dir = hostPath[0] // which a host searches first
		case dir == p.Driver.above+"/bin":
			continue
		}
		if leadsToWindows(dir) {
			return true
		}
	}
	return slices.ContainsFunc(hostPath[:], func(dir string) bool { return !slices.Contains(path, dir) && leadsToWindows(dir) })
}

// leadsToWindows reports whether a directory has a program by which clang finds headers for Windows.
func leadsToWindows(dir string) bool {
	if isThere(dir + "/cl.exe") {
		return true
	}
	return slices.ContainsFunc(namesIn(dir), func(name string) bool {
		return driver.IsOddGCCForWindows(name) || slices.Contains(driver.GCCsForWindows, name)
	})
}

// forWindows reports whether the command chooses Windows as the target.
func (p *Plan) forWindows() bool {
	for _, o := range p.options {
		if w := o.words[0]; strings.HasPrefix(w, "--target") || w == "-target" {
			t := strings.ToLower(o.arg)
			if strings.Contains(t, "mingw") || strings.Contains(t, "windows") || strings.Contains(t, "win32") || strings.Contains(t, "msvc") {
				return true
			}
		}
	}
	return false
}

// targeted reports whether the command chooses the target.
func (p *Plan) targeted() bool {
	for _, o := range p.options {
		if w := o.words[0]; strings.HasPrefix(w, "--target") || w == "-target" {
			return true
		}
	}
	return false
}

var gccVariables = [...]string{
	"COLLECT_AS_OPTIONS",        // recorded for -flto
	"COMPILER_PATH",             // where cc1 and as are looked for
	"DEPENDENCIES_OUTPUT",       // a further dependency file, appended to
	"EXPERIMENTAL_SARIF_SOCKET", // messages go there too
	"GCC_COMPARE_DEBUG",         // compiles twice
	"GCC_CPUINFO",               // describes the processor for -mcpu=native on Arm
	"GCC_DIAGNOSTICS_LOG",       // a further file
	"GCC_EXEC_PREFIX",           // where cc1 and as are looked for
	"GCC_SPECS",                 //
	"MSP430_GCC_INCLUDE_DIR",    // a list of controllers
	"OFFLOAD_TARGET_NAMES",      // further compilers
	"SUNPRO_DEPENDENCIES",       // as DEPENDENCIES_OUTPUT
	"XTENSA_GNU_CONFIG",         // a library that describes the processor
}

// mayBeForDarwin reports whether a gcc compiles for Darwin, or cannot be told not to: a script may run any other. A driver has the target
// that it was built for within it, and for Darwin the name of the variable that it reads.
func (d Driver) mayBeForDarwin() bool {
	text, ok := readUpTo(d.program, maxProgram)
	return !ok || !strings.HasPrefix(text, "\x7fELF") || strings.Contains(text, "-darwin") || strings.Contains(text, appleVariables[0])
}

// maxProgram is up to which size a driver is looked into, in bytes. gcc's have about one MiB, without shared libraries some more.
const maxProgram = 16 << 20

// roots lists the variables in which a gcc looks for the directory in place of its prefix: the name of a component, and _ROOT. By the
// last one, Debian's gcc 15 and 16 find the assembler.
var roots = [...]string{"BINUTILS_ROOT", "GCC_ROOT", "G++_ROOT", "path_ROOT"}

var clangVariables = [...]string{
	"AMD_SPLIT_MODULE_LOG_DIR",
	"AS_SECURE_LOG_FILE", // .secure_log_unique appends to it
	"CCC_ADD_ARGS",
	"CCC_OVERRIDE_OPTIONS",
	"CC_LOG_DIAGNOSTICS",
	"CC_PRINT_HEADERS",
	"CC_PRINT_HEADERS_FORMAT", // also without the one before
	"CC_PRINT_INTERNAL_STAT",
	"CC_PRINT_OPTIONS",
	"CC_PRINT_PROC_STAT",
	"CLANG_CONFIG_FILE_SYSTEM_DIR",
	"CLANG_CONFIG_FILE_USER_DIR",
	"CLANG_NO_DEFAULT_CONFIG",
	"COMPILER_PATH",
	"DEPENDENCIES_OUTPUT",
	"FORCE_CLANG_DIAGNOSTICS_CRASH", // whatever its value
	"GCC_EXEC_PREFIX",
	"LLVM_CPUINFO", // describes the processor for -mcpu=native, except on x86
	"LLVM_OVERRIDE_PRODUCER",
	"NCC_CPLUS_INCLUDE_PATH",
	"NCC_C_INCLUDE_PATH",
	"OFFLOAD_BUNDLER_IGNORE_ENV_VAR",
	"QA_OVERRIDE_GCC3_OPTIONS",
	"RC_DEBUG_OPTIONS",
	"RC_DEBUG_PREFIX_MAP",
	"SCE_ORBIS_SDK_DIR",
	"SCE_PROSPERO_SDK_DIR",
	"SUNPRO_DEPENDENCIES",
	"XCC_CPLUS_INCLUDE_PATH",
	"XCC_C_INCLUDE_PATH",
}

// targetVariables lists variables that matter to clang for certain targets. Environments set them for other programs, too, so
// they only count if the command chooses a target.
var targetVariables = [...]string{
	"EXTERNAL_INCLUDE", "INCLUDE", "UCRTVersion", "UniversalCRTSdkDir", "VCINSTALLDIR", "VCToolsInstallDir", "VSINSTALLDIR", "WindowsSDKVersion", "WindowsSdkDir",
	"HIP_DEVICE_LIB_PATH", "HIP_PATH", "ROCM_PATH",
	"CLANG_CONFIG_PATH", // further words, with z/OS
	"OBJECT_MODE",       // 32 or 64, with AIX
}

// appleVariables lists the variables that say where the headers of Apple's systems are, and for which version to compile. Of all gcc,
// only those for Darwin read them; environments for cross compilers set them for others, too.
var appleVariables = [...]string{
	"SDKROOT",
	"BRIDGEOS_DEPLOYMENT_TARGET", "DRIVERKIT_DEPLOYMENT_TARGET", "IPHONEOS_DEPLOYMENT_TARGET", "MACOSX_DEPLOYMENT_TARGET",
	"TVOS_DEPLOYMENT_TARGET", "VISIONOS_DEPLOYMENT_TARGET", "WATCHOS_DEPLOYMENT_TARGET", "XROS_DEPLOYMENT_TARGET",
}

// locales lists variables by which the C library finds other message catalogues and character conversions, or writes messages
// in another encoding.
var locales = [...]string{"GCONV_PATH", "LOCPATH", "OUTPUT_CHARSET"}

// travelling lists the variables that go along with a job, some of them with sources only.
var travelling = [...]string{
	"LANG", "LANGUAGE", "LC_ALL", "LC_ADDRESS", "LC_COLLATE", "LC_CTYPE", "LC_IDENTIFICATION", "LC_MEASUREMENT", "LC_MESSAGES",
	"LC_MONETARY", "LC_NAME", "LC_NUMERIC", "LC_PAPER", "LC_TELEPHONE", "LC_TIME", "SOURCE_DATE_EPOCH",
	"PWD", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "OBJCPLUS_INCLUDE_PATH",
	"COLUMNS", "TERM", "COLORTERM", "VTE_VERSION", "NO_COLOR", "GCC_COLORS", "GCC_URLS", "TERM_URLS", "GCC_EXTRA_DIAGNOSTIC_OUTPUT",
}

// IsLocale reports whether a variable chooses the language of messages. Other variables that
// begin with LC_, as terminals set them, mean nothing to a compiler.
func IsLocale(name string) bool {
	for _, n := range travelling[:15] {
		if n == name {
			return true
		}
	}
	return false
}

// GoesWithText reports whether a variable of the client's goes along with preprocessed text:
// it chooses the language of messages, or the date.
func GoesWithText(name string) bool { return IsLocale(name) || name == "SOURCE_DATE_EPOCH" }

// GoesWithSources reports whether a variable goes along with sources. Apart from those of
// GoesWithText, such variables say where headers are, where the compile works, and what its
// messages look like.
func GoesWithSources(name string) bool {
	for _, n := range travelling {
		if n == name {
			return true
		}
	}
	return false
}

// FitsEnvironment reports whether a variable that goes along may have a value. With any other
// value the command runs here, and a host refuses it.
func FitsEnvironment(name, value string) bool {
	switch name {
	case "SOURCE_DATE_EPOCH":
		return value != "" && onlyOf(value, digitBytes, 20)
	case "PWD":
		dir, ok := unit.Shared(value)
		return strings.HasPrefix(value, "/") && plain(value, maxPath) && ok && (dir == value || pathname.Clean(dir) == ".")
	case "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "OBJCPLUS_INCLUDE_PATH":
		for dir := range strings.SplitSeq(value, ":") {
			if _, ok := unit.Shared(dir); !ok {
				return false
			}
		}
		return plain(value, maxText)
	case "COLUMNS", "VTE_VERSION":
		return onlyOf(value, digitBytes, 9)
	case "GCC_COLORS":
		return onlyOf(value, letterBytes+digitBytes+"=;:,_-", maxPath)
	case "NO_COLOR":
		return plain(value, maxWord)
	case "TERM", "COLORTERM", "GCC_URLS", "TERM_URLS", "GCC_EXTRA_DIAGNOSTIC_OUTPUT":
		return onlyOf(value, letterBytes+digitBytes+"_.+:-", maxWord)
	}
	// The locale names directories and files below the toolchain's.
	return IsLocale(name) && onlyOf(value, letterBytes+digitBytes+"_.@:-", maxWord) && !strings.Contains(value, "..")
}

// temporaryElsewhere reports whether a variable makes clang put its temporary files anywhere except in /tmp.
func temporaryElsewhere(getenv func(string) (string, bool)) bool {
	if getenv == nil {
		return false
	}
	for _, name := range [...]string{"TMPDIR", "TMP", "TEMP", "TEMPDIR"} {
		if dir, set := getenv(name); set {
			return dir != "/tmp"
		}
	}
	return false
}

// headerDirs returns the header directories that variables name.
func headerDirs(getenv func(string) (string, bool)) (dirs []string) {
	if getenv == nil {
		return nil
	}
	for _, name := range [...]string{"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "OBJCPLUS_INCLUDE_PATH"} {
		dirs = appendDirs(dirs, getenv, name)
	}
	return dirs
}

// appendDirs appends the header directories that the variable name lists.
func appendDirs(dirs []string, getenv func(string) (string, bool), name string) []string {
	list, _ := getenv(name)
	if list == "" {
		return dirs
	}
	for dir := range strings.SplitSeq(list, ":") {
		if dir == "" {
			dir = "."
		}
		dir, _ = unit.Shared(dir)
		dirs = append(dirs, dir)
	}
	return dirs
}
