// Package job is what a connection manager and a daemon say to each other: one
// message a Send, little-endian, of at most MaxMessage bytes. It does no I/O.
//
// A compile is two RDMA messages out and two back:
//
//	manager                                   daemon
//	  RDMA Write  Body ++ text ────────────▶  the slot that a Credit names
//	  Send+Inval  Job (kills the slot STag) ▶ runs the compiler
//	  sink ◀───────────────────────────────── RDMA Write  stdout, stderr, files
//	  ◀────────────────────────── Send+Inval  Result (kills the sink STag)
//
// What is too big for slot or sink stays where it is: Job or Result offer a
// window, from which the other side fetches it by RDMA Reads.
//
// Everything else is rare: Proof and Hello/Welcome once a connection; unasked messages
// (Toolchains, Compilers, Grant, Recall, Drain, Heartbeat, Cancel, Demand) of one kind wait for the
// Ack of the last of that kind, so the receives that a side must have posted
// are bounded: one an answer due, and Spare more.
package job

import (
	"errors"
	"fmt"
	"time"
)

// Limits of the protocol.
const (
	Version    = 7
	MaxMessage = 1024    // bytes; every posted receive is this long
	Spare      = 16      // receives posted beyond the answers that are due
	MaxOutputs = 16      // files a job may bring back
	MaxCredits = 16      // in one Grant
	MaxCancels = 64      // jobs in one Cancel
	MaxIDs     = 48      // toolchains in one Toolchains message
	MaxNames   = 32      // compilers in one Compilers message
	MaxVersion = 28      // bytes of each of them
	BodyAlign  = 64      // the text starts at the next multiple behind the Body
	MaxName    = 64      // bytes of Hello.Name
	MaxDetail  = 200     // bytes of a line for a person
	MaxBodyLen = 4 << 20 // bytes of an encoded Body, or of all Lists of one; Linux gives a command 2 MiB at most
	MaxLists   = 1024    // in one Body
	AskLen     = 45      // bytes of a manager's Greeting.Auth, where there is one
	AnswerLen  = 69      // of a daemon's
	ProofLen   = 32      // bytes of a Proof
)

// WindowTime is how long what Result offers is kept at least, after the Result or
// after the last RDMA Read of the connection: who needs longer to begin sends
// Release and does without. Nobody has to keep it for longer.
const WindowTime = 30 * time.Second

// Kind is a message's first byte.
type Kind uint8

// Kinds of messages. M: manager to daemon, D: daemon to manager.
const (
	KindHello      Kind = 1 + iota // M
	KindWelcome                    // D
	KindToolchains                 // D, acked
	KindGrant                      // D, acked
	KindRecall                     // D, acked once the unspent credits have been returned
	KindReturn                     // M, Send with Invalidate of the slot
	KindJob                        // M, Send with Invalidate of the slot
	KindResult                     // D, Send with Invalidate of the sink
	KindCancel                     // M, acked; each job is still answered by its Result
	KindHeartbeat                  // both, acked
	KindDrain                      // D, acked: no new job; running ones are finished
	KindAck                        // both
	KindRelease                    // M, Send with Invalidate of the window that a Result offered
	KindDemand                     // M, acked
	KindProof                      // M, the first message where there is a pre-shared key
	KindCompilers                  // D, acked

	// NumKinds is one more than the largest kind: the length of a table by Kind.
	NumKinds = iota + 1
)

// ToolchainID is the first 16 bytes of a SHA-256 over a toolchain's content
// (package toolchain).
type ToolchainID [16]byte

// Window is memory of the sender's: Len bytes at TO of STag. The peer may write a
// slot or a sink, and read what is offered. With STag 0 there is none.
type Window struct {
	STag uint32
	TO   uint64
	Len  uint64
}

// Greeting is the MPA private data of the Request: magic and version, so that
// a peer of another kind is told so before a QP exists.
type Greeting struct {
	Version uint16
	Boot    [16]byte // a random number a process start; tells a restarted peer
	Auth    []byte   // what begins a proof of a pre-shared key (package psk), or nothing
}

// Rejection is the private data of a rejecting Reply.
type Rejection struct {
	Cause  Cause
	Detail string // one line for a person, at most MaxDetail bytes
}

// Proof is the manager's first Send where it has a pre-shared key (package psk).
// Nothing else is looked at before it.
type Proof struct{ MAC [ProofLen]byte }

// Hello is the manager's first Send, but for a Proof.
type Hello struct {
	Name string // of the build host, for the daemon's log; at most MaxName bytes
	Want uint16 // credits it can hold at most; 0 = as many as there are
	// Weight is this manager's part when a host is divided among several: of twice
	// the weight gets twice as much. 1 is ordinary; 0 counts as 1.
	Weight uint16
}

// Welcome answers Hello.
type Welcome struct {
	Boot       [16]byte
	Jobs       uint16 // compiles at a time
	MaxBody    uint64 // bytes of Body and text together that fit a slot
	MaxSource  uint64 // of those together that the daemon will fetch; 0 = it fetches nothing
	MaxResult  uint64 // bytes that the daemon will write back at most
	Toolchains uint16 // that follow in Toolchains messages
	// Identifying: the daemon is still finding out which compilers it has. Toolchains
	// messages follow as it knows them; one without More says that it is done.
	Identifying bool
	Board       Window // the load board, BoardLen bytes; or none
	Tree        bool   // the host can show private trees: it takes bodies with Files
	Zstd        bool   // it unpacks zstd: Job.Packed may be set
	Sandbox     uint16 // measures that confine its compiles (sandbox.Set)
	Clock       uint64 // its wall clock, milliseconds since 1970
	Program     string // what it calls its version, at most MaxName bytes
	Store       uint64 // bytes of contents that it keeps for this tenant at most; 0 = none: no Blobs, no Lists
	StoreEpoch  uint64 // changes when what it kept for this tenant was wiped; 0 = there is no store
	Load        Load
}

// Toolchains lists what the host can run. First is the index of IDs[0]: a list that
// begins at 0 again replaces the one before. More says that a longer list may follow
// soon, as the host is still finding out which compilers it has.
type Toolchains struct {
	Seq   uint32
	First uint16
	Total uint16
	More  bool
	IDs   []ToolchainID
}

// Compilers names the families and versions behind Toolchains, say "gcc 12.2.0", for
// people: an ID says nothing to them. Each one counts once, however many programs there
// are of it. A later message replaces the one before.
type Compilers struct {
	Seq   uint32
	Names []string // at most MaxNames of at most MaxVersion bytes
}

// Credit is the right to place and queue one compile, with the slot for its
// source. It ends by a Job, a Return, or with the QP.
type Credit struct {
	ID   uint64
	Slot Window
}

// Grant gives credits.
type Grant struct {
	Seq     uint32
	Credits []Credit
}

// Recall asks for up to Count unspent credits.
type Recall struct {
	Seq   uint32
	Count uint16
}

// Return gives an unspent credit back.
type Return struct{ Credit uint64 }

// Job starts a compile whose Body and text lie in the credit's slot, or in Source:
// then the daemon fetches all of it before it answers.
type Job struct {
	ID        uint64 // the manager's; unique on the connection
	Credit    uint64
	Toolchain ToolchainID
	BodyLen   uint32 // encoded Body at the slot's start
	TextOff   uint32 // BodyLen rounded up to BodyAlign
	TextLen   uint64
	Sink      Window   // where the result goes
	Source    Window   // Body and text, when they are too big for the slot
	Fetch     uint64   // bytes of a result that the manager will fetch when it is too big for Sink; 0 = none
	Timeout   uint32   // milliseconds of wall time for the compile; 0 = the daemon's limit
	Digest    [16]byte // package digest, of the unpacked TextOff+TextLen bytes; zero = none
	Packed    uint64   // bytes in the slot, or in Source, that are one zstd frame of Body and text, which BodyLen, TextOff and TextLen describe unpacked; 0 = plain
	Memory    uint64   // bytes that the compile is expected to take; 0 = not known
	Expect    uint32   // milliseconds of wall time that it is expected to take; 0 = not known
	Zstd      bool     // the result may come packed
	Store     bool     // Body has Blobs or Lists; those are looked at before the job is queued
}

// Status says what became of a job.
type Status uint8

// Statuses.
const (
	StatusRan     Status = iota // the compiler ran: Exit and Signal are its
	StatusRefused               // Cause says why; nothing ran
	StatusFailed                // Cause says why; something ran, the result is void
)

// Cause refines a refusal or failure.
type Cause uint8

// Causes.
const (
	CauseNone       Cause = iota
	CauseToolchain        // refused: no such toolchain here
	CausePolicy           // refused: an option or file that the daemon does not allow
	CauseFull             // refused: no room
	CauseDraining         // refused: going down
	CauseMalformed        // refused: the job makes no sense
	CauseDenied           // rejection: this peer may not use the host
	CauseVersion          // rejection: no common version
	CauseTimeout          // failed: wall limit
	CauseCancelled        // failed: as asked
	CauseTooBig           // failed: result does not fit the sink
	CauseDisk             // failed: no space, or an I/O error, on the host
	CauseInternal         // failed: a fault of the daemon
	CauseTree             // refused: a body with Files, but the host cannot show private trees, or not these files
	CauseUndeclared       // failed: the compiler made a file that the body does not name
	CauseDigest           // failed: the source is not the one that was sent
	CauseMemory           // refused or failed: not enough memory on the host
	CauseSandbox          // refused: the host cannot confine compiles as well as it was told to
	CauseLimit            // failed: the compile went past a limit of the host's, or did what its sandbox forbids
	CauseLacks            // refused: the host has not, or not any more, contents that the job names, whose IDs are what it Wrote as stdout
	numCauses
)

// String is the word that reasons, metrics and logs use.
func (c Cause) String() string {
	if c < numCauses {
		return causeWords[c]
	}
	return "unknown"
}

var causeWords = [numCauses]string{"none", "toolchain", "policy", "full", "draining", "malformed",
	"denied", "version", "timeout", "cancelled", "too-big", "disk", "internal", "tree", "undeclared", "digest", "memory", "sandbox", "limit", "lacks"}

// Refusal is why a job is not run, or why nothing comes of one that was, as an error:
// the Cause and the Detail of its answer.
type Refusal struct {
	Cause  Cause
	Detail string // one line for a person
}

func (r *Refusal) Error() string { return r.Detail }

// Refuse returns the Refusal with a formatted Detail.
func Refuse(cause Cause, format string, args ...any) *Refusal {
	return &Refusal{Cause: cause, Detail: fmt.Sprintf(format, args...)}
}

// Segment is one part of a result, in the sink or in the window that was offered:
// Len bytes at Off.
type Segment struct {
	Off, Len uint64
}

// File is an output that the compiler made.
type File struct {
	Index uint8 // in Body.Outputs
	Exec  bool  // owner may execute it
	Segment
}

// Result answers a Job.
type Result struct {
	ID               uint64
	Status           Status
	Cause            Cause
	Exit             uint8
	Signal           uint8
	Stdout           Segment
	Stderr           Segment
	Files            []File
	Queue, Wall, CPU uint32 // microseconds: waiting for a core, compiling, its CPU
	MaxRSS           uint64 // bytes
	Window           Window // the result, when it is too big for the sink; Release is due
	Load             Load
	Next             *Credit  // in place of the one that the job spent, or nil
	Digest           [16]byte // package digest, of all bytes up to the last segment's end, unpacked; zero = none
	Packed           uint64   // bytes in sink or Window that are one zstd frame of the result, which the segments describe unpacked; 0 = plain
	Detail           string   // why Cause, one line of at most MaxDetail bytes; empty when it ran
}

// Load is a host's state.
type Load struct {
	Jobs       uint16 `json:"jobs"` // compiles at a time
	Running    uint16 `json:"running"`
	Queued     uint16 `json:"queued"`
	Free       uint16 `json:"free"` // credits not granted
	Draining   bool   `json:"draining"`
	LoadAvg    uint32 `json:"load_avg_percent"`  // one-minute load average x 100
	MemoryFree uint64 `json:"memory_free_bytes"` // available
}

// Cancel asks that jobs end; each is answered by its Result.
type Cancel struct {
	Seq  uint32
	Jobs []uint64
}

// Heartbeat asks for an Ack.
type Heartbeat struct{ Seq uint32 }

// Drain says that the host takes no new job.
type Drain struct{ Seq uint32 }

// Release ends the window that the Result of a job offered. One is due for each of
// them, whether anything was fetched or not.
type Release struct{ ID uint64 }

// Demand says how much work a manager has for a host now, so that nobody is granted
// more than there is use for. It holds until the next one; before the first a
// manager counts as one that can use its whole share.
type Demand struct {
	Seq    uint32
	Jobs   uint16 // places it has use for: its jobs there, and those that wait
	Builds uint16 // of how many builds they are
}

// Ack answers an unasked message.
type Ack struct {
	Of   Kind
	Seq  uint32
	Load Load // from a daemon
}

// Output names a file that is to come back.
type Output struct {
	Kind     OutputKind
	Name     string // path as the client's compiler would have used it
	Optional bool   // the compiler may not have made it
}

// OutputKind is a sort of output.
type OutputKind uint8

// Output kinds.
const (
	OutputObject OutputKind = iota
	OutputAssembly
	OutputStackUsage
	OutputSide       // any other file beside
	OutputDependency // make's rules: a .d file
	numOutputKinds
)

// Body stands at the slot's start: what the compiler is told. It has one of two
// forms.
//
// The text form has no Files. Behind the body lies preprocessed text; Args are
// options, without input, output, -c or -S.
//
// The sources form has Files or Lists: what the compile reads on the client. The
// contents of Files lie one behind the other, in this order and with nothing between, in
// place of the text, and those of Blobs behind them. A list's files and their contents
// are known to the host by then: they came with this job, or with an earlier one. A job
// with Blobs or Lists has Job.Store set. No name stands twice, whatever it is in. Args is the whole command behind the compiler's name, as typed, with response
// files and "native" expanded. It runs in a tree that has these files only, beside
// the toolchain's. Relative names are seen from Cwd. They may be spelled oddly, with
// ".." and links: they are used as they are.
type Body struct {
	Argv0    string       // what the compiler is called, for its own messages
	Compiler string       // sources form: its path on the client, links resolved, as it looks for headers from there; "" = not told
	Args     []string     // see above
	Front    uint32       // sources form: so many of Args, the first, the compiler proper gets right behind the source, not in the driver's order
	Language string       // -x of the text, or of the source
	Name     string       // base name of the source: the text is stored under it
	Cwd      string       // the client's working directory
	Env      []string     // NAME=VALUE that the daemon's rules allow
	Outputs  []Output     // the first one is what -o names
	Files    []SourceFile // sources form: what the compile reads
	Dirs     []string     // sources form: more directories that exist on the client and that the command names
	Links    []Link       // sources form: made first
	Blobs    []Blob       // sources form: contents that the host is to keep for this tenant
	Lists    []ContentID  // sources form: contents that are Lists, whose files are there as well; at most MaxLists, none twice
}

// HasFiles reports whether b is of the sources form.
func (b *Body) HasFiles() bool { return len(b.Files)+len(b.Lists) > 0 }

// ContentID names a content: its SHA-256. The host computes it anew of what comes.
type ContentID = [32]byte

// Blob is a content that travels with a job, but is none of its files by itself.
type Blob struct {
	ID  ContentID
	Len uint64 // bytes, not 0: every host has the empty content
	// Abridged: what travels is not the content, which is a List, but a zstd frame (RFC 8878) of that List without
	// the Content of some files: the host looks among its own for those (IsSystemFile).
	Abridged bool
}

// SourceFile is a file that a compile reads.
type SourceFile struct {
	Name  string
	Len   uint64 // bytes
	MTime int64  // nanoseconds since 1970
	Same  uint32 // 0, or 1 + index of an earlier file that is the same inode: a hard link, and Len is 0
	Exec  bool
}

// Link is a symbolic link, say a PWD that is not the real working directory.
type Link struct {
	Name   string // absolute
	Target string // absolute
}

// ErrMalformed is the parent of every parse error.
var ErrMalformed = errors.New("malformed message")

// TextOffset is where the text lies behind a Body of n encoded bytes.
func TextOffset(n int) int { return (n + BodyAlign - 1) &^ (BodyAlign - 1) }

// Clip makes s fit for Detail and Name: its first line, at most n bytes of it
// without breaking a UTF-8 sequence, control characters as '?'.
func Clip(s string, n int) string {
	clean := true
	for i := 0; i < len(s); i++ {
		if s[i] == '\n' || s[i] == '\r' {
			s = s[:i]
			break
		}
		clean = clean && s[i] >= ' ' && s[i] != 0x7f
	}
	if len(s) > n {
		for n > 0 && s[n]&0xc0 == 0x80 {
			n--
		}
		s = s[:n]
	}
	if clean {
		return s
	}
	b := []byte(s)
	for i, c := range b {
		if c < ' ' || c == 0x7f {
			b[i] = '?'
		}
	}
	return string(b)
}
