package ipc

import (
	"encoding/binary"
	"errors"

	"github.com/rdistcc/rdistcc/internal/wire"
)

// Bounds of lists, so that a count cannot make the reader allocate more than
// the frame could hold.
const (
	maxFiles = 64
	MaxWords = 1024 // in a list of words
	// MaxAbsent is the most names in Submit.Absent.
	MaxAbsent = 16 << 10
	maxArgs   = 64 << 10 // words of a command; a frame cannot hold more
)

// HeaderLen is the length of a frame's header, the part before its fields, in bytes.
const HeaderLen = 5

// Errors in frames.
var (
	ErrMalformed = errors.New("malformed frame")
	// ErrVersion says that the other side speaks another version of the protocol. The fields are not read.
	ErrVersion = errors.New("another version of the local protocol")
)

// Append appends the frame of m to b and returns the extended slice. Every message has such a method, and a
// Parse method that reads the fields (the frame without its header). Strings and slices of a parsed message
// are copies.
func (m *Lease) Append(b []byte) []byte { return m.append(b, KindLease) }

// AppendMaking appends a frame of KindMaking, with the fields of a Lease, to b.
func (m *Lease) AppendMaking(b []byte) []byte { return m.append(b, KindMaking) }

func (m *Lease) append(b []byte, k Kind) []byte {
	b, at := begin(b, k)
	b = append(b, m.Version)
	b = wire.AppendString(b, m.Hosts)
	b = append(b, uint8(m.Mode), uint8(m.Fallback))
	b = wire.AppendString(b, m.Compiler)
	b = wire.AppendString(b, m.Source)
	b = wire.AppendString(b, m.Output)
	b = wire.AppendString(b, m.Cwd)
	b = wire.AppendUint32(b, m.IOTimeoutMS)
	b = wire.AppendUint32(b, m.BackoffMS)
	b = wire.AppendStrings(b, m.List)
	b = wire.AppendStrings(b, m.Preprocess)
	b = wire.AppendString(b, m.Language)
	b = wire.AppendBool(b, m.NeedTree)
	b = wire.AppendStrings(b, m.Machine)
	b = wire.AppendStrings(b, m.Unlisted)
	b = wire.AppendString(b, m.Path)
	b = wire.AppendString(b, m.Libraries)
	b = wire.AppendString(b, m.Build)
	b = append(b, uint8(m.Cache))
	b = wire.AppendString(b, m.Base)
	b = wire.AppendStrings(b, m.Plugins)
	b = wire.AppendString(b, m.PluginDir)
	b = wire.AppendString(b, m.Link)
	b = m.Command.append(b)
	return end(b, at)
}

// append appends c, which may be nil, to b.
func (c *Command) append(b []byte) []byte {
	b = wire.AppendBool(b, c != nil)
	if c == nil {
		return b
	}
	b = wire.AppendString(b, c.Argv0)
	b = wire.AppendString(b, c.Real)
	b = wire.AppendStrings(b, c.Args)
	b = wire.AppendStrings(b, c.Env)
	b = wire.AppendUint64(b, c.Names)
	b = wire.AppendBool(b, c.Terminal)
	b = wire.AppendBool(b, c.Words)
	for _, n := range [...]uint64{c.View.Mounts, c.View.RootDev, c.View.Root, c.View.CwdDev, c.View.CwdIno, c.View.Rights} {
		b = wire.AppendUint64(b, n)
	}
	return b
}

func (d *decoder) command() *Command {
	if !d.Bool() {
		return nil
	}
	return &Command{Argv0: d.Text(), Real: d.Text(), Args: d.stringsUpTo(maxArgs), Env: d.strings(), Names: d.Uint64(), Terminal: d.Bool(), Words: d.Bool(),
		View: View{d.Uint64(), d.Uint64(), d.Uint64(), d.Uint64(), d.Uint64(), d.Uint64()}}
}

// Parse reads a Lease. ErrVersion leaves all fields but Version unset.
func (m *Lease) Parse(p []byte) error {
	d := newDecoder(p)
	*m = Lease{Version: d.Uint8()}
	if m.Version != Version {
		return d.otherVersion()
	}
	m.Hosts = d.Text()
	m.Mode = Mode(d.Uint8())
	m.Fallback = Fallback(d.Uint8())
	m.Compiler = d.Text()
	m.Source = d.Text()
	m.Output = d.Text()
	m.Cwd = d.Text()
	m.IOTimeoutMS = d.Uint32()
	m.BackoffMS = d.Uint32()
	m.List = d.strings()
	m.Preprocess = d.strings()
	m.Language = d.Text()
	m.NeedTree = d.Bool()
	m.Machine = d.strings()
	m.Unlisted = d.strings()
	m.Path = d.Text()
	m.Libraries = d.Text()
	m.Build = d.Text()
	m.Cache = Cache(d.Uint8())
	m.Base = d.Text()
	m.Plugins = d.strings()
	m.PluginDir = d.Text()
	m.Link = d.Text()
	m.Command = d.command()
	if m.Mode > ModeLocal || m.Fallback > FallbackForbidden || m.Cache > CacheRead {
		d.Fail("not a value of this field")
	}
	return d.end()
}

// Append adds the frame of m to b.
func (m *Leased) Append(b []byte) []byte {
	b, at := begin(b, KindLeased)
	b = wire.AppendUint64(b, m.Job)
	b = wire.AppendUint64(b, m.SourceMax)
	b = wire.AppendString(b, m.Family)
	b = wire.AppendUint32(b, m.Major)
	b = wire.AppendStrings(b, m.Direct)
	b = wire.AppendBool(b, m.Tree)
	b = wire.AppendBool(b, m.Fast)
	b = wire.AppendStrings(b, m.Include)
	b = wire.AppendStrings(b, m.Native)
	b = wire.AppendBool(b, m.NativeOrder)
	b = wire.AppendBool(b, m.Known)
	b = wire.AppendString(b, m.Inputs)
	b = wire.AppendUint32(b, m.Files)
	b = wire.AppendBool(b, m.Unsure)
	b = wire.AppendStrings(b, m.Lacking)
	return end(b, at)
}

// Parse reads a Leased.
func (m *Leased) Parse(p []byte) error {
	d := newDecoder(p)
	*m = Leased{Job: d.Uint64(), SourceMax: d.Uint64(), Family: d.Text(), Major: d.Uint32(), Direct: d.strings(),
		Tree: d.Bool(), Fast: d.Bool(), Include: d.strings(), Native: d.strings(), NativeOrder: d.Bool(),
		Known: d.Bool(), Inputs: d.Text(), Files: d.Uint32(), Unsure: d.Bool(), Lacking: d.strings()}
	return d.end()
}

// Append adds the frame of m to b.
func (m *GoLocal) Append(b []byte) []byte {
	b, at := begin(b, KindGoLocal)
	b = wire.AppendString(b, m.Reason)
	b = wire.AppendBool(b, m.Trouble)
	b = append(b, m.Code)
	b = wire.AppendString(b, m.Detail)
	b = wire.AppendString(b, m.Host)
	b = wire.AppendBool(b, m.NoFallback)
	b = append(b, byte(m.Tell))
	return end(b, at)
}

// Parse reads a GoLocal.
func (m *GoLocal) Parse(p []byte) error {
	d := newDecoder(p)
	*m = GoLocal{Reason: d.Text(), Trouble: d.Bool(), Code: d.Uint8(), Detail: d.Text(), Host: d.Text(), NoFallback: d.Bool(), Tell: Tell(d.Uint8())}
	return d.end()
}

// Append adds the frame of m to b.
func (m *Submit) Append(b []byte) []byte {
	b, at := begin(b, KindSubmit)
	b = wire.AppendUint32(b, m.BodyOff)
	b = wire.AppendUint32(b, m.BodyLen)
	b = wire.AppendUint32(b, m.TextOff)
	b = wire.AppendUint64(b, m.TextLen)
	b = wire.AppendUint32(b, m.PreprocessUS)
	b = wire.AppendBool(b, m.Tree)
	b = wire.AppendStrings(b, m.Absent)
	b = wire.AppendBool(b, m.Unsure)
	b = wire.AppendString(b, m.Module)
	b = wire.AppendString(b, m.ModuleFile)
	b = wire.AppendStrings(b, m.Imports)
	b = wire.AppendStrings(b, m.Images)
	return end(b, at)
}

// Parse reads a Submit. It does not check the offsets: the manager compares them with the slot's size.
func (m *Submit) Parse(p []byte) error {
	d := newDecoder(p)
	*m = Submit{BodyOff: d.Uint32(), BodyLen: d.Uint32(), TextOff: d.Uint32(), TextLen: d.Uint64(), PreprocessUS: d.Uint32(), Tree: d.Bool(), Absent: d.stringsUpTo(MaxAbsent), Unsure: d.Bool(),
		Module: d.Text(), ModuleFile: d.Text(), Imports: d.strings(), Images: d.strings()}
	return d.end()
}

// Append adds the frame of m to b.
func (m *Listed) Append(b []byte) []byte {
	b, at := begin(b, KindListed)
	b = wire.AppendStrings(b, m.Names)
	b = wire.AppendStrings(b, m.Dirs)
	return end(b, at)
}

// Parse reads a Listed.
func (m *Listed) Parse(p []byte) error {
	d := newDecoder(p)
	*m = Listed{Names: d.stringsUpTo(MaxAbsent), Dirs: d.strings()}
	return d.end()
}

// Append adds the frame of m to b.
func (m *Ran) Append(b []byte) []byte {
	b, at := begin(b, KindRan)
	b = wire.AppendString(b, string(m.Words))
	b = wire.AppendString(b, string(m.Reads))
	b = wire.AppendUint32(b, m.CPUUS)
	b = wire.AppendUint32(b, m.WallUS)
	return end(b, at)
}

// Parse reads a Ran.
func (m *Ran) Parse(p []byte) error {
	d := newDecoder(p)
	*m = Ran{Words: []byte(d.Text()), Reads: []byte(d.Text()), CPUUS: d.Uint32(), WallUS: d.Uint32()}
	if len(m.Words) > MaxWordsHere || len(m.Reads) > MaxWordsHere {
		d.Fail("too many words")
	}
	return d.end()
}

// Append adds the frame of m to b.
func (m *Result) Append(b []byte) []byte {
	b, at := begin(b, KindResult)
	b = wire.AppendString(b, m.Host)
	b = append(b, m.Exit, m.Signal)
	b = appendSegment(b, m.Stdout)
	b = appendSegment(b, m.Stderr)
	b = wire.AppendUint32(b, uint32(len(m.Files)))
	for _, f := range m.Files {
		b = append(b, f.Index)
		b = appendSegment(b, f.Segment)
	}
	for _, us := range [...]uint32{m.CreditUS, m.WriteUS, m.QueueUS, m.CompileUS, m.ReturnUS} {
		b = wire.AppendUint32(b, us)
	}
	b = wire.AppendUint64(b, m.BytesOut)
	b = wire.AppendUint64(b, m.BytesIn)
	b = wire.AppendUint32(b, m.SentFiles)
	b = append(b, m.Attempts)
	b = wire.AppendString(b, m.Cached)
	b = wire.AppendBool(b, m.Moved)
	return end(b, at)
}

// Parse reads a Result.
func (m *Result) Parse(p []byte) error {
	d := newDecoder(p)
	*m = Result{Host: d.Text(), Exit: d.Uint8(), Signal: d.Uint8(), Stdout: d.segment(), Stderr: d.segment()}
	for range d.count(1+16, maxFiles) {
		m.Files = append(m.Files, File{Index: d.Uint8(), Segment: d.segment()})
	}
	for _, us := range [...]*uint32{&m.CreditUS, &m.WriteUS, &m.QueueUS, &m.CompileUS, &m.ReturnUS} {
		*us = d.Uint32()
	}
	m.BytesOut = d.Uint64()
	m.BytesIn = d.Uint64()
	m.SentFiles = d.Uint32()
	m.Attempts = d.Uint8()
	m.Cached = d.Text()
	m.Moved = d.Bool()
	return d.end()
}

// Append adds the frame of m to b.
func (m *Local) Append(b []byte) []byte {
	b, at := begin(b, KindLocal)
	b = append(b, m.Version)
	b = wire.AppendString(b, m.Reason)
	b = append(b, uint8(m.Turn))
	b = wire.AppendString(b, m.Compiler)
	b = wire.AppendString(b, m.Source)
	b = wire.AppendString(b, m.Output)
	b = wire.AppendString(b, m.Build)
	b = wire.AppendString(b, m.Link)
	b = wire.AppendBool(b, m.Closed)
	return end(b, at)
}

// Parse reads a Local. ErrVersion leaves all fields but Version unset.
func (m *Local) Parse(p []byte) error {
	d := newDecoder(p)
	*m = Local{Version: d.Uint8()}
	if m.Version != Version {
		return d.otherVersion()
	}
	m.Reason = d.Text()
	m.Turn = Turn(d.Uint8())
	m.Compiler = d.Text()
	m.Source = d.Text()
	m.Output = d.Text()
	m.Build = d.Text()
	m.Link = d.Text()
	m.Closed = d.Bool()
	if m.Turn > TurnLocal {
		d.Fail("not a value of this field")
	}
	return d.end()
}

// Append adds the frame of m to b.
func (m *Finish) Append(b []byte) []byte {
	b, at := begin(b, KindFinish)
	b = append(b, m.Where)
	b = wire.AppendString(b, m.Reason)
	b = append(b, m.Exit)
	b = wire.AppendUint32(b, m.TotalUS)
	b = wire.AppendUint32(b, m.PreprocessUS)
	b = wire.AppendUint32(b, m.CPUUS)
	b = wire.AppendBool(b, m.Closed)
	return end(b, at)
}

// Parse reads a Finish.
func (m *Finish) Parse(p []byte) error {
	d := newDecoder(p)
	*m = Finish{Where: d.Uint8(), Reason: d.Text(), Exit: d.Uint8(), TotalUS: d.Uint32(), PreprocessUS: d.Uint32(), CPUUS: d.Uint32(), Closed: d.Bool()}
	if m.Where > WhereLocal {
		d.Fail("not a value of this field")
	}
	return d.end()
}

// Append adds the frame of m to b.
func (m *Control) Append(b []byte) []byte {
	b, at := begin(b, KindControl)
	b = append(b, m.Version)
	b = wire.AppendStrings(b, m.Args)
	b = wire.AppendString(b, m.Hosts)
	return end(b, at)
}

// Parse reads a Control. ErrVersion leaves all fields but Version unset.
func (m *Control) Parse(p []byte) error {
	d := newDecoder(p)
	*m = Control{Version: d.Uint8()}
	if m.Version != Version {
		return d.otherVersion()
	}
	m.Args = d.strings()
	m.Hosts = d.Text()
	return d.end()
}

// Append adds the frame of m to b.
func (m *Reply) Append(b []byte) []byte {
	b, at := begin(b, KindReply)
	b = append(b, m.Code)
	b = wire.AppendString(b, string(m.Data))
	return end(b, at)
}

// Parse reads a Reply.
func (m *Reply) Parse(p []byte) error {
	d := newDecoder(p)
	*m = Reply{Code: d.Uint8(), Data: []byte(d.Text())}
	return d.end()
}

// Append adds the frame of m to b.
func (m *Replace) Append(b []byte) []byte {
	b, at := begin(b, KindReplace)
	return end(wire.AppendBool(append(b, m.Version), m.Force), at)
}

// Parse reads a Replace of any version and ignores the fields that a later version adds.
func (m *Replace) Parse(p []byte) error {
	d := newDecoder(p)
	*m = Replace{Version: d.Uint8(), Force: d.Bool()}
	if d.Fault != "" {
		return ErrMalformed
	}
	return nil
}

// AppendBare appends a frame without fields, of KindGo, KindWait, KindMade, KindList, KindTell, KindTellReads or KindAsk, to b.
func AppendBare(b []byte, k Kind) []byte {
	b, at := begin(b, k)
	return end(b, at)
}

// Next returns the first frame in b. n is its length with the header, or 0 if b does not hold a whole frame
// yet; want is then the length to wait for. The fields share b's memory. The error is nil or ErrMalformed.
func Next(b []byte) (k Kind, fields []byte, n, want int, err error) {
	if len(b) < HeaderLen {
		return 0, nil, 0, HeaderLen, nil
	}
	size := binary.LittleEndian.Uint32(b)
	if size < 1 || size > MaxFrame {
		return 0, nil, 0, 0, ErrMalformed
	}
	n = 4 + int(size)
	if len(b) < n {
		return 0, nil, 0, n, nil
	}
	return Kind(b[4]), b[HeaderLen:n:n], n, n, nil
}

// begin starts a frame; end fills in its length.
func begin(b []byte, k Kind) ([]byte, int) {
	at := len(b)
	return append(b, 0, 0, 0, 0, uint8(k)), at
}

func end(b []byte, at int) []byte {
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

func appendSegment(b []byte, s Segment) []byte {
	b = wire.AppendUint64(b, s.Off)
	return wire.AppendUint64(b, s.Len)
}

// decoder reads the fields of a frame.
type decoder struct{ wire.Reader[[]byte] }

func newDecoder(b []byte) *decoder { return &decoder{wire.Reader[[]byte]{Rest: b}} }

func (d *decoder) strings() []string { return d.stringsUpTo(MaxWords) }

func (d *decoder) stringsUpTo(limit int) []string {
	list := d.Texts()
	if len(list) > limit {
		d.Fail("list too long")
		return nil
	}
	return list
}

func (d *decoder) count(least, limit int) int {
	n := d.Count(least)
	if n > limit {
		d.Fail("list too long")
		return 0
	}
	return n
}

func (d *decoder) segment() Segment { return Segment{Off: d.Uint64(), Len: d.Uint64()} }

// otherVersion returns the error for a message of another version.
func (d *decoder) otherVersion() error {
	if d.Fault != "" {
		return ErrMalformed
	}
	return ErrVersion
}

func (d *decoder) end() error {
	if d.End() != "" {
		return ErrMalformed
	}
	return nil
}
