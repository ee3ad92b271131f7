// Package job defines the messages between a connection manager and a daemon: one message per
// Send, little-endian, of at most MaxMessage bytes. Behind a Job, the Send may carry what the job
// consists of. The package does no I/O.
//
// A compile is two RDMA messages out and two back:
//
//	manager                                   daemon
//	  RDMA Write  Body ++ text ────────────▶  the slot that a Credit names
//	  Send+Inval  Job (kills the slot STag) ▶ runs the compiler
//	  sink ◀───────────────────────────────── RDMA Write  stdout, stderr, files
//	  ◀────────────────────────── Send+Inval  Result (kills the sink STag)
//
// A source has three ways to the host, its Carrier: the Write above, inside the Send of the Job (eager), or
// by RDMA Reads of the daemon out of a window that the Job offers (pull). What is too big for slot or sink
// is always offered in a window, by the Job or the Result.
//
// All other messages are rare. Proof and Hello/Welcome come once per connection. Unsolicited messages
// (Toolchains, Compilers, Grant, Recall, Drain, Heartbeat, Cancel, Demand, Keep) wait for the
// Ack of the previous one of their kind. That bounds the receives that a side must have
// posted: one for each answer due, and Spare more.
package job

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// Limits of the protocol.
const (
	Version    = 12
	Oldest     = 11      // the oldest version that is spoken with peers who speak no newer one: see Speaks
	MaxMessage = 1024    // bytes; every posted receive is this long, and a daemon's by Welcome.Eager longer
	Spare      = 16      // receives posted beyond the answers due
	MaxOutputs = 16      // files that a job may bring back
	MaxCredits = 16      // in one Grant
	MaxCancels = 64      // jobs in one Cancel
	MaxIDs     = 48      // toolchains in one Toolchains message
	MaxNames   = 32      // compilers in one Compilers message
	MaxVersion = 28      // bytes of each of those names
	BodyAlign  = 64      // the text starts at the next multiple of this after the Body
	MaxName    = 64      // bytes of Hello.Name
	MaxBase    = 250     // bytes of Job.Base
	MaxDetail  = 200     // bytes of a line for a person
	MaxBodyLen = 4 << 20 // bytes of an encoded Body, or of all its Lists together; Linux limits a command to 2 MiB
	MaxLists   = 1024    // in one Body
	MaxImages  = 8       // in one Body
	AskLen     = 45      // bytes of a manager's Greeting.Auth, if it has one
	AnswerLen  = 69      // bytes of a daemon's
	ProofLen   = 32      // bytes of a Proof
	MaxEager   = 1 << 20 // bytes of a source that Welcome.Eager may allow at most
	MaxKeep    = 4 << 20 // bytes of a result in the window of a Keep
)

// WindowTime is the least time for which what Result offers is kept, counted from the Result or from
// the last RDMA Read of the connection. A manager that needs longer to begin sends Release and does
// without. The daemon need not keep it longer.
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
	KindDrain                      // D, acked: no new jobs; running ones are finished
	KindAck                        // both
	KindRelease                    // M, Send with Invalidate of the window that a Result offered
	KindDemand                     // M, acked
	KindProof                      // M, the first message if there is a pre-shared key
	KindCompilers                  // D, acked
	KindKeep                       // M, acked once the window is not read any more

	// NumKinds is one more than the largest kind: the length of a table indexed by Kind.
	NumKinds = iota + 1
)

// Window is memory of the sender: Len bytes at TO of STag. The peer may write to a slot or a sink, and
// read what is offered. STag 0 means that there is none.
type Window struct {
	STag uint32
	TO   uint64
	Len  uint64
}

// Greeting is the MPA private data of the Request: magic and version, so that a peer of another kind
// is told about it before a QP exists.
type Greeting struct {
	Version uint16
	Boot    [16]byte // a random number for each process start; reveals a restarted peer
	Auth    []byte   // start of a proof of a pre-shared key (package psk), or nothing
}

// Rejection is the private data of a rejecting Reply.
type Rejection struct {
	Version uint16 // that the daemon speaks; 0 in what is to be sent means ours
	Cause   Cause
	Detail  string // one line for a person, at most MaxDetail bytes
}

// Proof is the manager's first Send if it has a pre-shared key (package psk). The daemon looks at
// nothing else before it.
type Proof struct{ MAC [ProofLen]byte }

// Hello is the manager's first Send, or the one after a Proof.
type Hello struct {
	Name string // of the build host, for the daemon's log; at most MaxName bytes
	Want uint16 // most credits that it can hold; 0 = no limit
	// Weight is this manager's relative share when a host is divided among several. 1 is
	// ordinary; 0 counts as 1.
	Weight uint16
	Bare   bool // it does not write sources: its credits need no slots
	// Program is its version string, at most MaxName bytes. Empty: it does not say. In version 11, it cannot.
	Program string
}

// Welcome answers Hello.
type Welcome struct {
	Boot       [16]byte
	Jobs       uint16 // compiles at a time
	MaxBody    uint64 // bytes of Body and text together that fit into a slot
	MaxSource  uint64 // bytes of Body and text together that the daemon fetches at most; 0 = it does not fetch
	Eager      uint32 // bytes of Body and text together that a Job may carry in its own Send, at most MaxEager; 0 = none
	MaxResult  uint64 // bytes of a result that the daemon writes back at most
	Toolchains uint16 // number of IDs that follow in Toolchains messages
	// Identifying means that the daemon is still finding out which compilers it has. Toolchains
	// messages follow as it identifies them; one without More says that it is done.
	Identifying bool
	Board       Window // the load board, BoardLen bytes; or none
	Tree        bool   // the host can show private trees: it takes bodies with Files
	Zstd        bool   // it unpacks zstd: Job.Packed may be set
	SlotsKept   bool   // slots stay open to the client: a Job or Return does not invalidate its slot
	Sandbox     uint16 // measures that confine its compiles (sandbox.Set)
	Clock       uint64 // its wall clock, milliseconds since 1970
	Program     string // its version string, at most MaxName bytes
	Store       uint64 // most bytes of contents that it keeps for this tenant; 0 = none: no Blobs, no Lists
	StoreEpoch  uint64 // changes when what it kept for this tenant was wiped; 0 = it has no store
	Shelf       Window // results that it keeps for this tenant (pkg/resultcache/shelf), to be read; or none
	Group       string // at most MaxName bytes: Shelf is that of all tenants in this group, and its results are signed; empty = it is this tenant's alone
	Load        Load
}

// Toolchains lists what the host can run. First is the index of IDs[0]: a list that begins at 0 again
// replaces the previous one. More says that a longer list may follow soon, as the host is still
// finding out which compilers it has.
type Toolchains struct {
	Seq   uint32
	First uint16
	Total uint16
	More  bool
	IDs   []unit.ToolchainID
}

// Compilers names the families and versions of the Toolchains, say "gcc 12.2.0", for people, to whom
// an ID means nothing. Each is listed once, however many programs there are of it. A later message
// replaces the previous one.
type Compilers struct {
	Seq   uint32
	Names []string // at most MaxNames of at most MaxVersion bytes
}

// Credit is the right to place and queue one compile, mostly with a slot for its source. It ends with a
// Job, a Return, or the QP.
type Credit struct {
	ID   uint64
	Slot Window // none: a bare credit, whose job comes eager or is pulled
}

// Grant grants credits.
type Grant struct {
	Seq     uint32
	Credits []Credit
}

// Recall asks for up to Count unspent credits.
type Recall struct {
	Seq   uint32
	Count uint16
}

// Return returns an unspent credit.
type Return struct{ Credit uint64 }

// Job starts a compile whose Body and text are in the credit's slot, or in Carried, or in Source: then the
// daemon fetches all of it before it answers. The Send invalidates the credit's slot, if it has one.
type Job struct {
	ID        uint64 // chosen by the manager; unique on the connection
	Credit    uint64
	Toolchain unit.ToolchainID
	BodyLen   uint32 // bytes of the encoded Body at the slot's start
	TextOff   uint32 // BodyLen rounded up to BodyAlign
	TextLen   uint64
	Sink      Window   // where the result goes
	Source    Window   // Body and text, if the daemon is to fetch them
	Fetch     uint64   // bytes of a result that the manager fetches at most when it is too big for Sink; 0 = none
	Timeout   uint32   // milliseconds of wall time for the compile; 0 = the daemon's limit
	Digest    [16]byte // package digest, over the unpacked TextOff+TextLen bytes; zero = none
	Packed    uint64   // bytes in the slot, in Source, or of Carried, that form one zstd frame of Body and text, which BodyLen, TextOff and TextLen describe unpacked; 0 = plain
	Memory    uint64   // expected peak memory in bytes; 0 = unknown
	Expect    uint32   // expected milliseconds of wall time; 0 = unknown
	Zstd      bool     // the result may be packed
	Store     bool     // Body has Blobs or Lists, which are processed before the job is queued
	Key       [32]byte // names the result, if the host may keep it on the tenant's shelf (resultcache.Key); zero = it may not, as with Images
	Join      bool     // an equal job of the tenant with the same Key that is under way may answer this one
	// Base is a directory on which the result may turn out not to depend (package move); it is kept under the name Moved
	// then, instead of Key. With a slash at its end, an object may have the job's working directory in its debug information.
	// Empty: none.
	Base  string
	Moved [32]byte
	// Carried is Body and text, or the frame of them, if the Send brings them: the only field beyond MaxMessage. nil = it does not.
	Carried []byte
}

// Status says what became of a job.
type Status uint8

// Statuses.
const (
	StatusRan     Status = iota // the compiler ran, with this Exit and Signal
	StatusRefused               // Cause says why; nothing was run
	StatusFailed                // Cause says why; something was run, the result is void
)

// Cause refines a refusal or failure.
type Cause uint8

// Causes.
const (
	CauseNone       Cause = iota
	CauseToolchain        // refused: no such toolchain here
	CausePolicy           // refused: an option or file that the daemon does not allow
	CauseFull             // refused: no room
	CauseDraining         // refused: the host is draining
	CauseMalformed        // refused: the job is invalid
	CauseDenied           // rejection: this peer may not use the host
	CauseVersion          // rejection: no common version
	CauseTimeout          // failed: wall-time limit
	CauseCancelled        // failed: cancelled as requested
	CauseTooBig           // failed: result does not fit the sink
	CauseDisk             // failed: no space, or an I/O error, on the host
	CauseInternal         // failed: a fault of the daemon
	CauseTree             // refused: the body has Files, and the host cannot show private trees, or not these files
	CauseUndeclared       // failed: the compiler made a file that the body does not declare
	CauseDigest           // failed: the source differs from what was sent
	CauseMemory           // refused or failed: not enough memory on the host
	CauseSandbox          // refused: the host cannot confine compiles as its settings require
	CauseLimit            // failed: the compile exceeded a limit of the host, or did something that its sandbox forbids
	CauseLacks            // refused: the host lacks contents that the job names; it wrote their IDs as stdout
	numCauses
)

// String returns the word that reasons, metrics and logs use.
func (c Cause) String() string {
	if c < numCauses {
		return causeWords[c]
	}
	return "unknown"
}

var causeWords = [numCauses]string{"none", "toolchain", "policy", "full", "draining", "malformed",
	"denied", "version", "timeout", "cancelled", "too-big", "disk", "internal", "tree", "undeclared", "digest", "memory", "sandbox", "limit", "lacks"}

// Refusal is the Cause and the Detail of an answer, as an error: why a job was not run, or why it has
// no result.
type Refusal struct {
	Cause  Cause
	Detail string // one line for a person
}

func (r *Refusal) Error() string { return r.Detail }

// Refuse returns a Refusal with a formatted Detail.
func Refuse(cause Cause, format string, args ...any) *Refusal {
	return &Refusal{Cause: cause, Detail: fmt.Sprintf(format, args...)}
}

// Segment is one part of a result: Len bytes at Off of the sink, or of the window that was offered.
type Segment struct {
	Off, Len uint64
}

// File is an output that the compiler has written.
type File struct {
	Index uint8 // in Body.Outputs
	Exec  bool  // executable by its owner
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
	Queue, Wall, CPU uint32 // microseconds: waiting for a core, compiling, CPU time of that
	MaxRSS           uint64 // bytes
	Window           Window // the result, if it is too big for the sink; Release is due
	Load             Load
	Next             *Credit  // replaces the one that the job spent, or nil
	Digest           [16]byte // package digest, over all bytes up to the end of the last segment, unpacked; zero = none
	Packed           uint64   // bytes in the sink or Window that form one zstd frame of the result, which the segments describe unpacked; 0 = plain
	Joined           bool     // it is the result of an equal job; Wall, CPU and MaxRSS are those of that one
	Detail           string   // explains Cause, one line of at most MaxDetail bytes; empty if the compiler ran
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

// Cancel requests that jobs end; each is answered by its Result.
type Cancel struct {
	Seq  uint32
	Jobs []uint64
}

// Heartbeat requests an Ack.
type Heartbeat struct{ Seq uint32 }

// Drain says that the host takes no new jobs.
type Drain struct{ Seq uint32 }

// Release ends the window that the Result of a job offered. Each such window needs one, whether
// anything was fetched or not.
type Release struct{ ID uint64 }

// Demand says how much work a manager has for a host now, so that it is granted no more than it can
// use. It holds until the next one. Before the first, a manager is assumed to use its whole share.
type Demand struct {
	Seq    uint32
	Jobs   uint16 // places it has use for: its jobs there, and those that wait
	Builds uint16 // number of builds they belong to
}

// Keep asks a host to keep a copy of a result that another host has compiled. The host may read Window until it
// acknowledges the message. It keeps what it finds there, or does not.
type Keep struct {
	Seq    uint32
	Key    [32]byte // as in Job
	Window Window   // the result as hosts keep it, at most MaxKeep bytes
}

// Ack answers an unsolicited message.
type Ack struct {
	Of   Kind
	Seq  uint32
	Load Load // from a daemon
}

// Body is at the start of a slot and describes the compile. It has one of two forms.
//
// The text form has no Files. Preprocessed text follows the body; Args are options, without
// input, output, -c or -S.
//
// The sources form has Files or Lists: what the compile reads on the client. In place of the text come
// the contents of Files, in this order without gaps, and then those of Blobs. A list's files and
// their contents must be known to the host: they came with this job, or with an earlier one. A job
// with Blobs or Lists has Job.Store set. No name occurs twice, in whichever of these. Args is the
// whole command after the compiler's name, as typed, with response files and "native" expanded. It runs
// in a tree that has only these files beside those of the toolchain. Relative names are seen from Cwd.
// Names may be spelled oddly, with ".." and links: they are used as they are.
type Body struct {
	Argv0    string           // argv[0] of the compiler, for its messages
	Compiler string           // sources form: its path on the client, with links resolved, from which it looks for headers; "" = not given
	Args     []string         // see the type's comment
	Front    uint32           // sources form: the first Front of Args go to the compiler proper right after the source, not in the driver's order
	Language string           // -x of the text, or of the source
	Name     string           // base name of the source: the text is stored under this name
	Cwd      string           // the client's working directory
	Env      []string         // NAME=VALUE that the daemon's rules allow
	Outputs  []unit.Output    // the first one is the one that -o names, unless the compile only checks the source
	Files    []unit.File      // sources form: what the compile reads
	Dirs     []string         // sources form: further directories that exist on the client and that the command names
	Links    []unit.Link      // sources form: created first
	Blobs    []Blob           // sources form: contents for the host to keep for this tenant
	Lists    []unit.ContentID // sources form: contents that are Lists, whose files exist as well; at most MaxLists, none twice
	// Images are precompiled headers that the compile finds on the client; at most MaxImages. The host makes them. Each is a
	// Body of the sources form without Files, Dirs, Links, Blobs and Images, and with one list: the command that makes the
	// image, which is the first of its Outputs, and everything that it reads, the source too.
	Images []Body
}

// HasFiles reports whether b has the sources form.
func (b *Body) HasFiles() bool { return len(b.Files)+len(b.Lists) > 0 }

// Blob is a content that travels with a job without being one of its files.
type Blob struct {
	ID  unit.ContentID
	Len uint64 // bytes, not 0: every host has the empty content
	// Abridged means that not the content, which is a List, travels, but a zstd frame (RFC 8878) of that List
	// without the Content of some files: the host looks for those among its own (IsSystemFile).
	Abridged bool
}

// ErrMalformed is wrapped by every parse error.
var ErrMalformed = errors.New("malformed message")

// TextOffset returns the offset of the text after a Body of n encoded bytes.
func TextOffset(n int) int { return (n + BodyAlign - 1) &^ (BodyAlign - 1) }

// Clip makes s fit for Detail and Name. It returns the first line, at most n bytes of it without
// splitting a UTF-8 sequence, with control characters replaced by '?'.
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
