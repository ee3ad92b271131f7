// Package ipc implements the local protocol, which a wrapper and the connection manager speak over a Unix
// stream socket. A frame is a little-endian uint32 (the number of bytes that follow), a kind byte, and the
// fields in the order of their struct: integers in their width, bools as one byte, and strings, byte slices
// and lists as a uint32 count and their elements. Descriptors travel with a frame's first byte.
//
// Each command has a connection of its own:
//
//	wrapper                                manager
//	  Lease ─────────────────────────────▶   knows what the compile reads: a host compiles
//	  ◀───────────── Leased, Result, 1 descriptor
//	  places the files
//	  Finish ────────────────────────────▶   counted
//
// Mostly the manager even reads the command: a Whole in place of the Lease, and Place ahead of Leased, which says where the files
// belong. If it does not know what the compile reads:
//
//	Lease ─────────────────────────────▶   waits for a preprocessor's turn, a slot
//	◀──────────────── Leased, 2 descriptors   (or GoLocal)
//	body and files, or the text, go into the slot
//	Submit ────────────────────────────▶   a host compiles
//	◀──────────────────────────── Result   (or GoLocal: do it here, and why)
//	places the files
//	Finish ────────────────────────────▶   counted; the slot is free again
//
// For a command that is not distributed, the wrapper sends Local instead of Lease, waits for Go unless the
// turn is TurnNone, runs the command, and sends Finish. (Where the manager may keep what a command that runs
// here comes to, it says so in GoLocal, or answers Local with Tell instead of Go. Then the wrapper sends Ran before
// Finish, if the command went well, and waits for Go.) If a wrapper with a slot finds that the command must
// run here after all (the text does not fit, the remote compiler printed something), it sends Local on the
// same connection, which gives the slot back. If the wrapper's end closes early, the manager cancels what is
// under way.
//
// While the manager owes an answer, it sends Wait every WaitEvery, so that a wrapper can tell a long queue
// from a manager that hangs.
//
// A manager can be replaced in the middle of a build: the new one asks the old one for its socket.
//
//	new manager                            old manager
//	  Replace ───────────────────────────▶
//	  ◀────── Reply, the socket and its lock    (or Reply with a code: no)
//	  serves, beside the old one
//	  Go ────────────────────────────────▶   takes nothing new, finishes what it has
//	  ◀───────────────────────────── Reply   has given up its other addresses too
//
// As both hold the same socket, a wrapper that connects meanwhile is served or waits in the socket's queue.
// These frames are the same in all versions.
//
// The package is linked into the wrapper, so it uses raw system calls, no reflection and not package net. The
// manager's end is package ipcserver.
package ipc

import "time"

// Version is the version of this protocol. A manager answers other versions with GoLocal for the reason
// "manager".
const Version = 14

// DistccList is a comment at the start of a host list that a wrapper has read from $DISTCC_DIR/hosts, as
// distcc would. Such a list is used only if the manager has none that was written for rdistcc.
const DistccList = "# of DISTCC_DIR\n"

// PartVariable is the variable by which a link tells the wrappers that it starts that they compile parts of its program: Lease.Link.
const PartVariable = "_RDISTCC_PART_OF"

// MaxFrame bounds a frame, in bytes after the length.
const MaxFrame = 4 << 20

// WaitEvery is how often a manager that owes an answer sends Wait. Patience is the silence after which a
// wrapper gives up on the manager.
const (
	WaitEvery = 5 * time.Second
	Patience  = 30 * time.Second
)

// Kind is a frame's kind.
type Kind uint8

// Kinds of frames. W: sent by the wrapper, M: sent by the manager.
const (
	KindLease     Kind = 1 + iota // W
	KindLeased                    // M, with descriptors (see Leased)
	KindGoLocal                   // M
	KindSubmit                    // W
	KindResult                    // M
	KindLocal                     // W
	KindGo                        // M, no fields
	KindFinish                    // W
	KindControl                   // W: a subcommand of rdistcc
	KindReply                     // M
	KindWait                      // M, no fields: the answer will follow
	KindReplace                   // from another manager, which wants to take over; the same in all versions
	KindMaking                    // W: a Lease of a command that makes a precompiled header here; its Local follows
	KindMade                      // W, no fields: it has made it; answered by Go, or by List
	KindList                      // M, no fields: what does the compiler list for that command?
	KindListed                    // W; answered by Go
	KindTell                      // M, no fields: Go, and say with Ran how the command has ended
	KindRan                       // W; answered by Go
	KindTellReads                 // M, no fields: Tell, and have the assembler say what it reads
	KindWhole                     // W; answered like Lease, or by Ask
	KindAsk                       // M, no fields: a Lease, for the manager does not read the command
	KindPlace                     // M, ahead of Leased and Result
)

// Turn says which turn a local command waits for.
type Turn uint8

// Turns.
const (
	TurnNone  Turn = iota // start at once, no Go is sent (as for queries)
	TurnCPP               // a preprocessor's turn
	TurnLocal             // a local compile's or link's turn
)

// Mode is the value of RDISTCC_MODE.
type Mode uint8

// Modes.
const (
	ModeAuto Mode = iota
	ModeRemote
	ModeLocal
)

// Fallback is the value of RDISTCC_FALLBACK: whether the command may be compiled here if the farm is in
// trouble.
type Fallback uint8

// Values of Fallback. RDISTCC_MODE=remote forbids fallback too.
const (
	FallbackUnsaid    Fallback = iota // the manager's settings decide
	FallbackAllowed                   // whatever the settings say
	FallbackForbidden                 // then the manager is patient with hosts
)

// Cache is the value of RDISTCC_CACHE: what the cache of results may be used for.
type Cache uint8

// Values of Cache.
const (
	CacheOn      Cache = iota // results are looked up, and kept
	CacheOff                  // neither
	CacheRefresh              // they are kept, and none is looked up
	CacheRead                 // they are looked up, and not kept
)

// Lease asks for a slot and a host for one compile.
type Lease struct {
	Version     uint8
	Hosts       string // host list of the environment, or empty for the manager's own
	Mode        Mode
	Fallback    Fallback
	Compiler    string // absolute path of the real compiler
	Source      string // as on the command line, for the status page and `rdistcc why`
	Output      string
	Cwd         string
	IOTimeoutMS uint32 // 0 = the manager's setting
	BackoffMS   uint32 // how long a lost host is avoided; NoBackoff = not at all, 0 = the manager's setting
	// List and Preprocess hold the compiler's arguments in the sources and in the text form, with placeholders
	// for names (package driver), for commands that the wrapper would like to run here without the driver. If
	// they are empty, the manager does not look for Leased.Direct.
	List       []string
	Preprocess []string
	Language   string // for -x; empty if the wrapper does not need Leased.Include
	NeedTree   bool   // the job can travel only in the sources form
	// Machine has the command's -m... words in order if one of them ends in "=native"; otherwise it is empty.
	Machine []string
	// Unlisted has the command's words that the wrapper does not know: the job may leave if its compiler takes each for a flag.
	Unlisted []string
	// Path and Libraries are the command's PATH and LD_LIBRARY_PATH. A driver may find its assembler by the
	// former, and all programs their libraries by the latter.
	Path, Libraries string
	Build           string // RDISTCC_BUILD, the build's name; empty: builds are told apart by process
	Cache           Cache
	Base            string // RDISTCC_BASE_DIR: directory that results may be shared across; empty: the manager's setting
	// Plugins are the files, by absolute names, that the command has the compiler load (-fplugin=): parts of its toolchain.
	Plugins []string
	// PluginDir is where the command's compiler looks for those that the command names without a directory; empty: there are none.
	PluginDir string
	// Link is the output, by its absolute name, of the link that has the command compile a part of its program; empty: none.
	Link string
	// Command is what the manager needs to make the job by itself if it knows what the compile reads. It is
	// nil if the manager must not do that.
	Command *Command
}

// Command is one compile as it was typed, and its wrapper's view of the file system: paths mean the same to
// the manager only if its view is the same.
type Command struct {
	Argv0    string   // the compiler's argv[0]
	Real     string   // the compiler's path, with links resolved
	Args     []string // the arguments, with response files expanded
	Env      []string // the variables that travel in the sources form (compile.GoesWithSources)
	Names    uint64   // a sum over the names of all its variables, without an order: the compiler may heed others
	Terminal bool     // standard error is a terminal
	Words    bool     // what a host's compiler prints is always good enough
	View     View
}

// NoBackoff is the value of Lease.BackoffMS with which a lost host is tried again at once.
const NoBackoff = ^uint32(0)

// Leased grants a slot. Two descriptors come with it, in this order: the source (read and write) and the sink
// (read). The wrapper owns and closes them.
type Leased struct {
	Job       uint64
	SourceMax uint64 // the most bytes that body and text may take together
	Family    string // "gcc", "clang" or "clang-tidy"
	Major     uint32 // compiler's major version
	// Direct is the program that the driver would run for Lease.List or Lease.Preprocess, whichever is of the
	// form to be made: its path, then its arguments with the same placeholders. If it is empty, the wrapper
	// runs the driver.
	Direct []string
	// Tree asks for the sources form, because some host that may take the job has private trees or none is
	// known yet. Otherwise the wrapper makes the text form.
	Tree bool
	// Fast says that what the host's compiler prints is final, also in the text form.
	Fast bool
	// Include lists the compiler's default header directories for Lease.Language. It is empty while they are
	// not known.
	Include []string
	// Native replaces the words of Lease.Machine that end in "=native", and goes before all other words. It is
	// empty without such words.
	Native []string
	// NativeOrder says that the compiler then gets its options in another order. That shows only where it
	// records them.
	NativeOrder bool
	// Known says that the manager has made the job by itself, in the sources form, and a host has compiled
	// it. A Result follows at once. Then only one descriptor comes along, the sink.
	Known bool
	// Inputs says how the manager knew what the compile reads, InputsScan or InputsMemo, or else why it did
	// not, in a word. Files is how many files the compile reads, if they are known.
	Inputs string
	Files  uint32
	// Unsure says that a message may quote a file that the job did not bring.
	Unsure bool
	// Lacking are headers that are not to be found here, by their names as in an include directive, sorted, if the compile of a Known
	// job has failed.
	Lacking []string
}

// Values of Leased.Inputs for a job that is Known.
const (
	InputsScan = "scan" // from the files
	InputsMemo = "memo" // from an earlier list of the compiler; nothing has changed since
)

// Replace asks a manager for its socket.
type Replace struct {
	Version uint8 // of the protocol that the new manager speaks
	Force   bool  // also if the new manager's version is not newer
}

// GoLocal tells the wrapper to run the command here. If Trouble is set, the wrapper shows Detail to the user
// as one line and, if fallback is forbidden, exits with Code instead of running the command. The wrapper
// already holds a local turn (TurnLocal). The slot is the manager's again once Finish.Closed says so.
type GoLocal struct {
	Reason  string // as in docs/troubleshooting.md, such as "no-hosts"
	Trouble bool
	Code    uint8  // one of rdistcc's exit codes
	Detail  string // one line without "rdistcc: " and "; compiled here"
	Host    string // the host that had the trouble, or empty
	// NoFallback says that the settings forbid fallback; RDISTCC_FALLBACK overrides it.
	NoFallback bool
	Tell       Tell
}

// Tell says what the manager wants to know of a command that runs here.
type Tell uint8

// Values of Tell.
const (
	TellNot   Tell = iota
	TellRan        // Ran, if it goes well: its result may be kept
	TellReads      // as well, with Ran.Reads
)

// Submit says where body and text are in the slot, and that only the wrapper still has it open: the
// preprocessor and its children have ended.
type Submit struct {
	BodyOff      uint32 // a multiple of job.BodyAlign
	BodyLen      uint32
	TextOff      uint32 // relative to BodyOff: job.TextOffset(BodyLen)
	TextLen      uint64
	PreprocessUS uint32
	Tree         bool // the job is in the sources form, for hosts with private trees only
	// Absent are names of files that were looked for and did not exist, at most MaxAbsent. Unsure is as in
	// Leased. Both are for a manager that remembers what the compiler has listed.
	Absent []string
	Unsure bool
	// Module, ModuleFile and Imports are the names of C++ modules that the rules for make may have (modules.Rules), at
	// most MaxWords.
	Module, ModuleFile string
	Imports            []string
	// Images are the precompiled headers that the compile may find here, at most MaxWords. The job is for the manager then,
	// which knows how they were made.
	Images []string
}

// Listed says what a command that makes a precompiled header reads: its source first, at most MaxAbsent names. There are
// none if that is uncertain.
type Listed struct {
	Names []string
	Dirs  []string // that must exist, too; at most MaxWords
}

// Ran says that the command has ended here with status 0, that it has printed nothing on its standard output, and what it
// has printed on its standard error. Its outputs are as it has left them until Go comes.
type Ran struct {
	Words []byte // at most MaxWordsHere
	// Reads is the rule for make by which GNU's assembler has named what it has read (--MD), if the manager has asked for it and it is
	// known. At most MaxWordsHere.
	Reads         []byte
	CPUUS, WallUS uint32
}

// MaxWordsHere bounds Ran.Words and Ran.Reads, in bytes.
const MaxWordsHere = 256 << 10

// TooMany is the value of Submit.Absent if there are more names than a frame has room for.
var TooMany = []string{""}

// Segment is a range of the sink: Len bytes at the offset Off.
type Segment struct{ Off, Len uint64 }

// File is one output file in the sink.
type File struct {
	Index uint8 // its index in the job body's outputs
	Segment
}

// Result is what the remote compiler did.
type Result struct {
	Host   string
	Exit   uint8
	Signal uint8
	Stdout Segment
	Stderr Segment
	Files  []File
	// In microseconds: the wait for a credit, the write of the source (from post to completion), the time in
	// the daemon's queue, the compile, and the rest of the round trip.
	CreditUS, WriteUS, QueueUS, CompileUS, ReturnUS uint32
	BytesOut, BytesIn                               uint64
	SentFiles                                       uint32 // files whose contents were sent; the host had the rest
	Attempts                                        uint8
	// Cached is the tier of the cache that had the result, or empty. Host compiled it then some time ago.
	Cached string
	// Moved says that the result is in another sink than the leased one. Its descriptor (read) comes along;
	// the wrapper owns and closes it.
	Moved bool
}

// Where returns where the result is from, in the words of a report.
func (m *Result) Where() string {
	if m.Cached != "" {
		return "cached:" + m.Cached
	}
	return "remote:" + m.Host
}

// Local announces a command that runs here.
type Local struct {
	Version                  uint8
	Reason                   string
	Turn                     Turn
	Compiler, Source, Output string
	Build, Link              string // as in Lease
	// Closed says that the source of the slot leased on this connection, if any, is no longer open outside the
	// manager, so the slot may be used again.
	Closed bool
}

// Finish ends a command.
type Finish struct {
	Where                 uint8  // WhereRemote or WhereLocal
	Reason                string // local only
	Exit                  uint8
	TotalUS, PreprocessUS uint32
	CPUUS                 uint32 // local only: CPU time of the command, in microseconds
	// Closed says that the slot's source is no longer open outside the manager, so the slot may be used again.
	Closed bool
}

// Values of Finish.Where: where a command ran.
const (
	WhereRemote = 0
	WhereLocal  = 1
)

// Control is a subcommand of rdistcc: its words and the host list of its environment.
type Control struct {
	Version uint8
	Args    []string
	Hosts   string
}

// Reply answers Control and Replace: an exit code, and JSON or an error line.
type Reply struct {
	Code uint8
	Data []byte
}
