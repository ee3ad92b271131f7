// Package ipc is what a wrapper and the connection manager say to each other
// over a Unix stream socket. A frame is a little-endian uint32 (the number of
// bytes that follow), a kind byte and the fields in the order of their struct:
// integers of their width, bools as one byte, strings, byte slices and lists as
// a uint32 count and their elements. Descriptors travel with a frame's first byte.
//
// One connection is one command:
//
//	wrapper                                manager
//	  Lease ─────────────────────────────▶   knows what the compile reads: a host compiles
//	  ◀───────────── Leased, Result, 1 descriptor
//	  places the files
//	  Finish ────────────────────────────▶   counted
//
// or, where the manager does not know what the compile reads:
//
//	Lease ─────────────────────────────▶   waits for a preprocessor's turn, a slot
//	◀──────────────── Leased, 2 descriptors   (or GoLocal)
//	body and files, or the text, go into the slot
//	Submit ────────────────────────────▶   a host compiles
//	◀──────────────────────────── Result   (or GoLocal: do it here, and why)
//	places the files
//	Finish ────────────────────────────▶   counted; the slot is free again
//
// A command that is not for the farm says Local instead of Lease, waits for Go
// unless its turn is TurnNone, runs, and says Finish. A wrapper that was leased
// a slot and finds that the command must run here after all (the text does not
// fit, the remote compiler printed something) says Local on the same connection:
// that gives the slot back. Whenever the wrapper's end closes early the manager
// cancels what is under way.
//
// While the manager has a question to answer it sends Wait every WaitEvery, so
// that a wrapper can tell a long queue from a manager that hangs.
//
// A manager is replaced in the midst of a build by one that asks it for its socket:
//
//	new manager                            old manager
//	  Replace ───────────────────────────▶
//	  ◀────── Reply, the socket and its lock    (or Reply with a code: no)
//	  serves, beside the old one
//	  Go ────────────────────────────────▶   takes nothing new, finishes what it has
//	  ◀───────────────────────────── Reply   has given up its other addresses too
//
// As both hold the same socket, who connects meanwhile waits in its queue or is served.
// These frames do not change from version to version.
//
// The package is linked into the wrapper: raw system calls, no reflection, no
// package net. The manager's end is package ipcserver.
package ipc

import "time"

// Version of this protocol; a manager refuses another one by GoLocal("manager").
const Version = 5

// DistccList begins the host list of a wrapper that has it from $DISTCC_DIR/hosts, as
// distcc would: a comment. It is for jobs of which the manager has no list that was
// written for rdistcc.
const DistccList = "# of DISTCC_DIR\n"

// MaxFrame bounds a frame, in bytes behind the length.
const MaxFrame = 4 << 20

// WaitEvery is how often a manager that owes an answer says so, Patience how
// long a wrapper listens to silence before it gives the manager up for lost.
const (
	WaitEvery = 5 * time.Second
	Patience  = 30 * time.Second
)

// Kind is a frame's kind.
type Kind uint8

// Kinds. W: from the wrapper, M: from the manager.
const (
	KindLease   Kind = 1 + iota // W
	KindLeased                  // M, with the source's and the sink's descriptor
	KindGoLocal                 // M
	KindSubmit                  // W
	KindResult                  // M
	KindLocal                   // W
	KindGo                      // M, no fields
	KindFinish                  // W
	KindControl                 // W: a subcommand of rdistcc
	KindReply                   // M
	KindWait                    // M, no fields: the answer is still to come
	KindReplace                 // W: another manager wants to take over; the same in all versions
)

// Turn says which turn a local command waits for.
type Turn uint8

// Turns.
const (
	TurnNone  Turn = iota // start at once, no Go is sent (queries)
	TurnCPP               // a preprocessor's turn
	TurnLocal             // a local compile's or link's turn
)

// Mode is RDISTCC_MODE.
type Mode uint8

// Modes.
const (
	ModeAuto Mode = iota
	ModeRemote
	ModeLocal
)

// Fallback is RDISTCC_FALLBACK: whether the command may be compiled here where the farm
// is in trouble.
type Fallback uint8

// What a command says of fallback. RDISTCC_MODE=remote forbids it too.
const (
	FallbackUnsaid    Fallback = iota // the manager's settings decide
	FallbackAllowed                   // whatever those say
	FallbackForbidden                 // so the manager is patient with hosts
)

// Lease asks for a slot and a host for one compile.
type Lease struct {
	Version     uint8
	Hosts       string // host list of the environment; empty: the manager's own
	Mode        Mode
	Fallback    Fallback
	Compiler    string // absolute path of the real compiler
	Source      string // as on the command line, for status pages and `why`
	Output      string
	Cwd         string
	IOTimeoutMS uint32 // 0 = the manager's
	BackoffMS   uint32 // how long a lost host is avoided; NoBackoff = not at all, 0 = the manager's
	// List and Preprocess hold the words behind the compiler's name of what the wrapper
	// would like to run here without the driver, in the sources and in the text form,
	// with placeholders for names (package driver); empty: do not look for Direct.
	List       []string
	Preprocess []string
	Language   string // for -x; empty: the wrapper does not ask for Include
	NeedTree   bool   // can travel only in the sources form
	// Machine has the command's words -m..., in order, if one of them ends in
	// "=native"; else it is empty.
	Machine []string
	// Path and Libraries are the command's PATH and LD_LIBRARY_PATH: a driver may find
	// its assembler by the one, and all of them their libraries by the other.
	Path, Libraries string
	Build           string // RDISTCC_BUILD: which build this is of; empty: the manager tells builds apart by the process
	// Command is what the manager needs to make the job by itself, if it knows what the
	// compile reads; nil: it is not to.
	Command *Command
}

// Command is one compile as it was typed, and how its wrapper sees the file system: paths
// mean the same to a manager only if it sees the same one.
type Command struct {
	Argv0    string   // as the compiler would be called
	Real     string   // its path without links
	Args     []string // behind its name, with response files expanded
	Env      []string // the variables that go along with sources (compile.GoesWithSources)
	Terminal bool     // standard error is one
	Words    bool     // what a host's compiler prints is good enough, whatever it is
	View     View
}

// NoBackoff in Lease.BackoffMS: a lost host is tried again at once.
const NoBackoff = ^uint32(0)

// Leased is a slot. Descriptors: source (read and write), sink (read), in this order;
// the wrapper owns them and closes them.
type Leased struct {
	Job       uint64
	SourceMax uint64 // bytes that body and text may take
	Family    string // "gcc" or "clang"
	Major     uint32 // compiler's major version
	// Direct is what the driver would run for the words of the form that is to be made,
	// its path first and with the same placeholders; empty: run the driver.
	Direct []string
	// Tree: make the sources form, as some host that may take the job shows trees,
	// or none is known yet; else the text form.
	Tree bool
	// Fast: what the host's compiler prints stands in the text form too.
	Fast bool
	// Include lists the directories where this compiler looks for headers of
	// Lease.Language by itself, or is nil while that is not known.
	Include []string
	// Native takes the place of the words of Lease.Machine that end in "=native",
	// before all other words; empty without such words.
	Native []string
	// NativeOrder: the compiler gets its options in another order then. That shows
	// where it records them, and nowhere else.
	NativeOrder bool
	// Known: the manager has made the job by itself, in the sources form, and a host has
	// compiled it. A Result follows at once. There is only one descriptor, the sink's.
	Known bool
	// Inputs says how the manager knew what the compile reads, InputsScan or InputsMemo;
	// where it did not, why not, a word. Files is how many there are.
	Inputs string
	Files  uint32
	// Unsure: a message may quote a file that the job has not brought.
	Unsure bool
}

// What Leased.Inputs says of a job that is Known.
const (
	InputsScan = "scan" // by a look at the files
	InputsMemo = "memo" // the compiler had been asked, and nothing has changed
)

// Replace asks a manager for its socket.
type Replace struct {
	Version uint8 // of the protocol that the new one speaks
	Force   bool  // also if that is no newer one
}

// GoLocal says: run the command here. When Trouble is set the user gets Detail
// as one line, and with fallback forbidden the wrapper exits with Code instead.
// The local turn (TurnLocal) is already held, and the slot is the manager's again
// once Finish says that nobody else holds it.
type GoLocal struct {
	Reason  string // as in the documentation, say "no-hosts"
	Trouble bool
	Code    uint8  // one of rdistcc's exit codes
	Detail  string // one line without "rdistcc: " and "; compiled here"
	Host    string // that had the trouble, or empty
	// NoFallback: the settings forbid to fall back; RDISTCC_FALLBACK overrides.
	NoFallback bool
}

// Submit says that nobody but the wrapper holds the slot any more (the preprocessor
// and its children have ended) and where body and text lie in the source.
type Submit struct {
	BodyOff      uint32 // a multiple of job.BodyAlign
	BodyLen      uint32
	TextOff      uint32 // from BodyOff on: job.TextOffset(BodyLen)
	TextLen      uint64
	PreprocessUS uint32
	Tree         bool // the sources form: only for hosts that show trees
	// Absent are names that were looked for in vain, and Unsure as in Leased: for a manager
	// that remembers what the compiler has listed.
	Absent []string
	Unsure bool
}

// TooMany in Submit.Absent: there are more such names than a frame has room for.
var TooMany = []string{""}

// Segment is Len bytes at Off of the sink.
type Segment struct{ Off, Len uint64 }

// File is one output file in the sink.
type File struct {
	Index uint8 // in the job body's outputs
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
	// Microseconds: waiting for a credit; source out (post to completion); the
	// daemon's queue and compile; the rest of the round trip.
	CreditUS, WriteUS, QueueUS, CompileUS, ReturnUS uint32
	BytesOut, BytesIn                               uint64
	SentFiles                                       uint32 // contents that were sent; the host had the others
	Attempts                                        uint8
	// Moved: the result lies in another sink than the leased one, whose descriptor
	// (read) comes along; the wrapper owns it and closes it.
	Moved bool
}

// Local announces a command that runs here.
type Local struct {
	Version                  uint8
	Reason                   string
	Turn                     Turn
	Compiler, Source, Output string
	// Closed, where a slot was leased on this connection: nobody holds its
	// source any more, it may be used again.
	Closed bool
}

// Finish ends a command.
type Finish struct {
	Where                 uint8  // 0 remote, 1 local
	Reason                string // local only
	Exit                  uint8
	TotalUS, PreprocessUS uint32
	// Closed: nobody holds the slot's source any more, it may be used again.
	Closed bool
}

// Where a command ran (Finish.Where).
const (
	WhereRemote = 0
	WhereLocal  = 1
)

// Control is a subcommand: its words, and where it was typed.
type Control struct {
	Version uint8
	Args    []string
	Hosts   string
}

// Reply answers Control: an exit code, and JSON or an error line.
type Reply struct {
	Code uint8
	Data []byte
}
