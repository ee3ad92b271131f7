// Package reason defines the words that say why a command ran here and not on a host. They appear in the
// trace and the reports of builds, in the labels of metrics, and in docs/troubleshooting.md, which a test compares
// with Words.
//
// It is linked into the wrapper, so it has nothing to initialise.
package reason

import "strings"

// Reasons that follow from a command line, a setting or a text. Nothing is wrong, and RDISTCC_FALLBACK=0
// does not forbid them.
const (
	Link         = "link"
	Preprocess   = "preprocess"
	Dependencies = "dependencies-only"
	Query        = "query"
	NoSource     = "no-source"
	Stdin        = "stdin"
	Assembler    = "assembler"
	Probe        = "probe"
	Mode         = "mode"
	LocalShare   = "local-share"
	Diagnostics  = "diagnostics"
	TooBig       = "too-big"

	// Of links by clang with LTO: the linker itself compiles what hosts could, the whole program at once or one module after another.
	LinkFull = Link + ":full-lto"
	LinkThin = Link + ":thin-lto"

	// These three are followed by details: the option, what another machine could not reproduce, or what a host made.
	UnknownOption   = "unknown-option:"
	NotReproducible = "not-reproducible:"
	Doubt           = "doubt:"
)

// Details of what is not reproducible that more than one package uses.
const (
	Native = NotReproducible + "native"
	Paths  = NotReproducible + "paths"
	Time   = NotReproducible + "time"
	Debug  = NotReproducible + "debug"
)

// Reasons that the farm causes. RDISTCC_FALLBACK=0 turns them into failures.
const (
	NoHosts    = "no-hosts"
	Toolchain  = "refused:toolchain"
	HostLost   = "host-lost"
	Timeout    = "timeout"
	Full       = "refused:full"
	Memory     = "refused:memory"
	Quarantine = "refused:quarantine"
	Sandbox    = "refused:sandbox"
	Draining   = "refused:draining"
	Policy     = "refused:policy"
	Denied     = "denied"
	NoSlot     = "no-slot"
	Manager    = "manager"
	HostList   = "host-list"
)

// Exit statuses of rdistcc, equal to those in distcc's manual page where it has the same case.
const (
	ExitGeneral    = 100
	ExitArguments  = 101
	ExitConnect    = 103
	ExitHostList   = 106
	ExitIO         = 107
	ExitProtocol   = 109
	ExitNoCompiler = 110 // no such compiler on the host
	ExitRecursion  = 111
	ExitDenied     = 113
	ExitNoHosts    = 116
	ExitTimeout    = 118
	ExitLimit      = 120 // a build exceeded a limit that it was given; distcc has no such case
)

// Word is a reason with its properties.
type Word struct {
	Reason string
	// Farm means that the farm causes it: where a command must not run here it fails with Status.
	Farm   bool
	Status uint8 // for those that the farm causes; Manager has others as well
	// Means explains it in a few words. WHAT stands for what follows the reason's colon.
	Means string
	// Remedy says in a few words what can be done about it, where Means does not; empty: nothing, or it is all right so.
	Remedy string
}

// Words lists all reasons, those of the farm last. A reason that ends in a colon stands for all that begin with it.
var Words = [...]Word{
	{Reason: Link, Means: "linking is done here"},
	{Reason: LinkFull, Means: "the linker compiles the whole program at once (-flto), which cannot be divided", Remedy: "-flto=thin can have hosts compile it: rdistcc help lto"},
	{Reason: LinkThin, Means: "the linker compiles the modules itself (-flto=thin)", Remedy: "with lld 21 or later hosts can compile them: rdistcc help lto"},
	{Reason: Preprocess, Means: "preprocessing (-E) is done here"},
	{Reason: Dependencies, Means: "listing dependencies (-M, -MM) is done here"},
	{Reason: Query, Means: "a query to the compiler, not a compile"},
	{Reason: NoSource, Means: "the command names no source file"},
	{Reason: Stdin, Means: "the source can be read only once"},
	{Reason: Assembler, Means: "assembler sources with further outputs are assembled here"},
	{Reason: Probe, Means: "configure asks about this machine"},
	{Reason: UnknownOption, Means: "rdistcc does not know the option WHAT for certain; is it misspelt?"},
	{Reason: Time, Means: "the time or date of the compile goes into the object; SOURCE_DATE_EPOCH settles it"},
	{Reason: Paths, Means: "it needs a host that shows private trees", Remedy: "see Compile hosts in docs/usage.md"},
	{Reason: Debug, Means: "debug information shows how preprocessed text is compiled, so it needs a host that shows private trees"},
	{Reason: Native, Means: "-march=native could not be put into other words"},
	{Reason: NotReproducible, Means: "another machine could not make the same files (WHAT, see docs/troubleshooting.md)"},
	{Reason: Mode, Means: "RDISTCC_MODE=local", Remedy: "unset RDISTCC_MODE"},
	{Reason: LocalShare, Means: "this machine does its share (localhost/N), or was expected to finish before any host", Remedy: "add hosts or faster ones; local.share: false in config.yaml ends it"},
	{Reason: Diagnostics, Means: "the compiler printed something that a host might have worded differently", Remedy: "use hosts with private trees, or diagnostics: fast in config.yaml"},
	{Reason: Doubt, Means: "the WHAT from a host contains something that only an unusual source would produce; compiled here to be sure", Remedy: "rdistcc why FILE shows what was doubted"},
	{Reason: TooBig, Means: "the source or the result is larger than the buffers (buffers in config.yaml)", Remedy: "raise them, for the manager and the daemons"},

	{NoHosts, true, ExitNoHosts, "no hosts are configured; set RDISTCC_HOSTS", ""},
	{Toolchain, true, ExitNoCompiler, "no host has this very compiler; install the same packages there", ""},
	{HostLost, true, ExitConnect, "the host could not be reached, or the connection broke", "rdistcc status shows the last error of each host"},
	{Timeout, true, ExitTimeout, "it took longer than RDISTCC_IO_TIMEOUT allows", "raise it, or limits.io-timeout in config.yaml"},
	{Full, true, ExitConnect, "every host is busy with other builds", "add hosts, or use a smaller -j"},
	{Memory, true, ExitConnect, "no host has as much memory free as this compile is expected to take", "use hosts with more memory, or fewer --jobs on them"},
	{Quarantine, true, ExitConnect, "the hosts that are left gave other objects than a second one; look at them, then rdistcc undrain", ""},
	{Sandbox, true, ExitConnect, "the hosts that are left cannot confine compiles as they were told to; their logs say why", ""},
	{Draining, true, ExitConnect, "the hosts that are left are shutting down, or were drained by hand (rdistcc undrain)", ""},
	{Policy, true, ExitDenied, "the host does not allow something in this command; its log says what", ""},
	{Denied, true, ExitDenied, "the host, or the manager, does not serve this user or machine", "rdistcc hosts says why"},
	{NoSlot, true, ExitGeneral, "no shared memory for the source", ""},
	{Manager, true, ExitProtocol, "the connection manager could not be used; cm.log in RDISTCC_DIR says more", ""},
	{HostList, true, ExitHostList, "the host list cannot be understood; rdistcc hosts says where", ""},
}

// Find returns the word for a reason, and what follows its colon if the word ends in one. ok is false if it
// is not a reason.
func Find(reason string) (w Word, what string, ok bool) {
	for _, w := range Words {
		if reason == w.Reason {
			return w, "", true
		}
		if strings.HasSuffix(w.Reason, ":") {
			if what, ok := strings.CutPrefix(reason, w.Reason); ok && what != "" {
				return w, what, true
			}
		}
	}
	return Word{}, "", false
}

// Links reports whether reason says that the command links.
func Links(reason string) bool { return reason == Link || reason == LinkFull || reason == LinkThin }

// Status returns the exit status of a command that fails for a reason that the farm causes, and 0 for any other.
func Status(reason string) uint8 {
	w, _, _ := Find(reason)
	return w.Status
}

// Compiles reports whether a command that ran here for a reason compiles a source, which a host might have done.
func Compiles(reason string) bool {
	switch reason {
	case Link, Preprocess, Dependencies, Query, NoSource, Probe:
		return false
	}
	return true
}

// Explain returns, in a few words, what docs/troubleshooting.md says about a reason.
func Explain(reason string) string {
	w, what, ok := Find(reason)
	if !ok {
		return "docs/troubleshooting.md has more"
	}
	return strings.ReplaceAll(w.Means, "WHAT", what)
}

// Remedy returns what can be done about a reason, in a few words, or "" where Explain says it or there is nothing.
func Remedy(reason string) string {
	w, _, _ := Find(reason)
	return w.Remedy
}

// Label returns the value that stands for a reason in metrics: the part before its colon, or Other for anything else.
func Label(reason string) string {
	word, _, _ := strings.Cut(reason, ":")
	for _, w := range Words {
		if label, _, _ := strings.Cut(w.Reason, ":"); label == word {
			return word
		}
	}
	return Other
}

// Other is the Label of anything that is not a reason.
const Other = "other"

// Labels returns all values that Label can return, each once.
func Labels() (list []string) {
	seen := make(map[string]bool, len(Words))
	for _, w := range Words {
		if label := Label(w.Reason); !seen[label] {
			seen[label] = true
			list = append(list, label)
		}
	}
	return append(list, Other)
}
