package ipc

import (
	"encoding/binary"
	"errors"
)

// Bounds of lists, so that a count cannot make the reader allocate more than
// the frame could hold.
const (
	maxFiles = 64
	MaxWords = 1024 // in a list of words
	// MaxAbsent is how many names a Submit may tell of that were looked for in vain.
	MaxAbsent = 16 << 10
	maxArgs   = 64 << 10 // words of a command; a frame has room for no more
)

// HeaderLen is the length of what stands before a frame's fields.
const HeaderLen = 5

// Errors of frames.
var (
	ErrMalformed = errors.New("malformed frame")
	// ErrVersion: the other side speaks another version; the fields are not read.
	ErrVersion = errors.New("another version of the local protocol")
)

// Append adds the frame of m to b. Every message has such a method, and a Parse
// that reads the fields (the frame without its header). Strings and slices of a
// parsed message are copies.
func (m *Lease) Append(b []byte) []byte {
	b, at := begin(b, KindLease)
	b = append(b, m.Version)
	b = appendString(b, m.Hosts)
	b = append(b, uint8(m.Mode), uint8(m.Fallback))
	b = appendString(b, m.Compiler)
	b = appendString(b, m.Source)
	b = appendString(b, m.Output)
	b = appendString(b, m.Cwd)
	b = binary.LittleEndian.AppendUint32(b, m.IOTimeoutMS)
	b = binary.LittleEndian.AppendUint32(b, m.BackoffMS)
	b = appendStrings(b, m.List)
	b = appendStrings(b, m.Preprocess)
	b = appendString(b, m.Language)
	b = appendBool(b, m.NeedTree)
	b = appendStrings(b, m.Machine)
	b = appendString(b, m.Path)
	b = appendString(b, m.Libraries)
	b = appendString(b, m.Build)
	b = m.Command.append(b)
	return end(b, at)
}

// append adds c, which may be nil.
func (c *Command) append(b []byte) []byte {
	b = appendBool(b, c != nil)
	if c == nil {
		return b
	}
	b = appendString(b, c.Argv0)
	b = appendString(b, c.Real)
	b = appendStrings(b, c.Args)
	b = appendStrings(b, c.Env)
	b = appendBool(b, c.Terminal)
	b = appendBool(b, c.Words)
	for _, n := range [...]uint64{c.View.Mounts, c.View.RootDev, c.View.Root, c.View.CwdDev, c.View.CwdIno, c.View.Rights} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func (d *decoder) command() *Command {
	if !d.bool() {
		return nil
	}
	return &Command{Argv0: d.string(), Real: d.string(), Args: d.stringsUpTo(maxArgs), Env: d.strings(), Terminal: d.bool(), Words: d.bool(),
		View: View{d.u64(), d.u64(), d.u64(), d.u64(), d.u64(), d.u64()}}
}

// Parse reads a Lease. ErrVersion leaves all fields but Version unset.
func (m *Lease) Parse(p []byte) error {
	d := decoder{b: p}
	*m = Lease{Version: d.u8()}
	if m.Version != Version {
		return d.otherVersion()
	}
	m.Hosts = d.string()
	m.Mode = Mode(d.u8())
	m.Fallback = Fallback(d.u8())
	m.Compiler = d.string()
	m.Source = d.string()
	m.Output = d.string()
	m.Cwd = d.string()
	m.IOTimeoutMS = d.u32()
	m.BackoffMS = d.u32()
	m.List = d.strings()
	m.Preprocess = d.strings()
	m.Language = d.string()
	m.NeedTree = d.bool()
	m.Machine = d.strings()
	m.Path = d.string()
	m.Libraries = d.string()
	m.Build = d.string()
	m.Command = d.command()
	if m.Mode > ModeLocal || m.Fallback > FallbackForbidden {
		d.bad = true
	}
	return d.end()
}

// Append adds the frame of m to b.
func (m *Leased) Append(b []byte) []byte {
	b, at := begin(b, KindLeased)
	b = binary.LittleEndian.AppendUint64(b, m.Job)
	b = binary.LittleEndian.AppendUint64(b, m.SourceMax)
	b = appendString(b, m.Family)
	b = binary.LittleEndian.AppendUint32(b, m.Major)
	b = appendStrings(b, m.Direct)
	b = appendBool(b, m.Tree)
	b = appendBool(b, m.Fast)
	b = appendStrings(b, m.Include)
	b = appendStrings(b, m.Native)
	b = appendBool(b, m.NativeOrder)
	b = appendBool(b, m.Known)
	b = appendString(b, m.Inputs)
	b = binary.LittleEndian.AppendUint32(b, m.Files)
	b = appendBool(b, m.Unsure)
	return end(b, at)
}

// Parse reads a Leased.
func (m *Leased) Parse(p []byte) error {
	d := decoder{b: p}
	*m = Leased{Job: d.u64(), SourceMax: d.u64(), Family: d.string(), Major: d.u32(), Direct: d.strings(),
		Tree: d.bool(), Fast: d.bool(), Include: d.strings(), Native: d.strings(), NativeOrder: d.bool(),
		Known: d.bool(), Inputs: d.string(), Files: d.u32(), Unsure: d.bool()}
	return d.end()
}

// Append adds the frame of m to b.
func (m *GoLocal) Append(b []byte) []byte {
	b, at := begin(b, KindGoLocal)
	b = appendString(b, m.Reason)
	b = appendBool(b, m.Trouble)
	b = append(b, m.Code)
	b = appendString(b, m.Detail)
	b = appendString(b, m.Host)
	b = appendBool(b, m.NoFallback)
	return end(b, at)
}

// Parse reads a GoLocal.
func (m *GoLocal) Parse(p []byte) error {
	d := decoder{b: p}
	*m = GoLocal{Reason: d.string(), Trouble: d.bool(), Code: d.u8(), Detail: d.string(), Host: d.string(), NoFallback: d.bool()}
	return d.end()
}

// Append adds the frame of m to b.
func (m *Submit) Append(b []byte) []byte {
	b, at := begin(b, KindSubmit)
	b = binary.LittleEndian.AppendUint32(b, m.BodyOff)
	b = binary.LittleEndian.AppendUint32(b, m.BodyLen)
	b = binary.LittleEndian.AppendUint32(b, m.TextOff)
	b = binary.LittleEndian.AppendUint64(b, m.TextLen)
	b = binary.LittleEndian.AppendUint32(b, m.PreprocessUS)
	b = appendBool(b, m.Tree)
	b = appendStrings(b, m.Absent)
	b = appendBool(b, m.Unsure)
	return end(b, at)
}

// Parse reads a Submit. The offsets are the wrapper's word: the manager holds
// them against the slot's size.
func (m *Submit) Parse(p []byte) error {
	d := decoder{b: p}
	*m = Submit{BodyOff: d.u32(), BodyLen: d.u32(), TextOff: d.u32(), TextLen: d.u64(), PreprocessUS: d.u32(), Tree: d.bool(), Absent: d.stringsUpTo(MaxAbsent), Unsure: d.bool()}
	return d.end()
}

// Append adds the frame of m to b.
func (m *Result) Append(b []byte) []byte {
	b, at := begin(b, KindResult)
	b = appendString(b, m.Host)
	b = append(b, m.Exit, m.Signal)
	b = appendSegment(b, m.Stdout)
	b = appendSegment(b, m.Stderr)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Files)))
	for _, f := range m.Files {
		b = append(b, f.Index)
		b = appendSegment(b, f.Segment)
	}
	for _, us := range [...]uint32{m.CreditUS, m.WriteUS, m.QueueUS, m.CompileUS, m.ReturnUS} {
		b = binary.LittleEndian.AppendUint32(b, us)
	}
	b = binary.LittleEndian.AppendUint64(b, m.BytesOut)
	b = binary.LittleEndian.AppendUint64(b, m.BytesIn)
	b = binary.LittleEndian.AppendUint32(b, m.SentFiles)
	b = append(b, m.Attempts)
	b = appendBool(b, m.Moved)
	return end(b, at)
}

// Parse reads a Result.
func (m *Result) Parse(p []byte) error {
	d := decoder{b: p}
	*m = Result{Host: d.string(), Exit: d.u8(), Signal: d.u8(), Stdout: d.segment(), Stderr: d.segment()}
	for range d.count(maxFiles) {
		m.Files = append(m.Files, File{Index: d.u8(), Segment: d.segment()})
	}
	for _, us := range [...]*uint32{&m.CreditUS, &m.WriteUS, &m.QueueUS, &m.CompileUS, &m.ReturnUS} {
		*us = d.u32()
	}
	m.BytesOut = d.u64()
	m.BytesIn = d.u64()
	m.SentFiles = d.u32()
	m.Attempts = d.u8()
	m.Moved = d.bool()
	return d.end()
}

// Append adds the frame of m to b.
func (m *Local) Append(b []byte) []byte {
	b, at := begin(b, KindLocal)
	b = append(b, m.Version)
	b = appendString(b, m.Reason)
	b = append(b, uint8(m.Gate))
	b = appendString(b, m.Compiler)
	b = appendString(b, m.Source)
	b = appendString(b, m.Output)
	b = appendBool(b, m.Closed)
	return end(b, at)
}

// Parse reads a Local. ErrVersion leaves all fields but Version unset.
func (m *Local) Parse(p []byte) error {
	d := decoder{b: p}
	*m = Local{Version: d.u8()}
	if m.Version != Version {
		return d.otherVersion()
	}
	m.Reason = d.string()
	m.Gate = Gate(d.u8())
	m.Compiler = d.string()
	m.Source = d.string()
	m.Output = d.string()
	m.Closed = d.bool()
	if m.Gate > GateLocal {
		d.bad = true
	}
	return d.end()
}

// Append adds the frame of m to b.
func (m *Finish) Append(b []byte) []byte {
	b, at := begin(b, KindFinish)
	b = append(b, m.Where)
	b = appendString(b, m.Reason)
	b = append(b, m.Exit)
	b = binary.LittleEndian.AppendUint32(b, m.TotalUS)
	b = binary.LittleEndian.AppendUint32(b, m.PreprocessUS)
	b = appendBool(b, m.Closed)
	return end(b, at)
}

// Parse reads a Finish.
func (m *Finish) Parse(p []byte) error {
	d := decoder{b: p}
	*m = Finish{Where: d.u8(), Reason: d.string(), Exit: d.u8(), TotalUS: d.u32(), PreprocessUS: d.u32(), Closed: d.bool()}
	if m.Where > WhereLocal {
		d.bad = true
	}
	return d.end()
}

// Append adds the frame of m to b.
func (m *Control) Append(b []byte) []byte {
	b, at := begin(b, KindControl)
	b = append(b, m.Version)
	b = appendStrings(b, m.Args)
	b = appendString(b, m.Hosts)
	return end(b, at)
}

// Parse reads a Control. ErrVersion leaves all fields but Version unset.
func (m *Control) Parse(p []byte) error {
	d := decoder{b: p}
	*m = Control{Version: d.u8()}
	if m.Version != Version {
		return d.otherVersion()
	}
	m.Args = d.strings()
	m.Hosts = d.string()
	return d.end()
}

// Append adds the frame of m to b.
func (m *Reply) Append(b []byte) []byte {
	b, at := begin(b, KindReply)
	b = append(b, m.Code)
	b = appendString(b, string(m.Data))
	return end(b, at)
}

// Parse reads a Reply.
func (m *Reply) Parse(p []byte) error {
	d := decoder{b: p}
	*m = Reply{Code: d.u8(), Data: []byte(d.string())}
	return d.end()
}

// Append adds the frame of m to b.
func (m *Replace) Append(b []byte) []byte {
	b, at := begin(b, KindReplace)
	return end(appendBool(append(b, m.Version), m.Force), at)
}

// Parse reads a Replace, of whatever version; what a later one adds is not for us.
func (m *Replace) Parse(p []byte) error {
	d := decoder{b: p}
	*m = Replace{Version: d.u8(), Force: d.bool()}
	if d.bad {
		return ErrMalformed
	}
	return nil
}

// AppendBare adds a frame without fields: KindGo or KindWait.
func AppendBare(b []byte, k Kind) []byte {
	b, at := begin(b, k)
	return end(b, at)
}

// Next splits the first frame off b. n is its length in b with the header, or 0
// when b does not hold a whole frame yet; want is then the length to wait for.
// The fields are a part of b.
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

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendSegment(b []byte, s Segment) []byte {
	b = binary.LittleEndian.AppendUint64(b, s.Off)
	return binary.LittleEndian.AppendUint64(b, s.Len)
}

// decoder reads fields off b. After the first one that is not there, all are
// zero and end reports it.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if d.bad || n > len(d.b) {
		d.bad = true
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) u8() uint8 {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if p := d.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if p := d.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

func (d *decoder) bool() bool {
	v := d.u8()
	if v > 1 {
		d.bad = true
	}
	return v == 1
}

func (d *decoder) string() string {
	n := d.u32()
	if uint64(n) > uint64(len(d.b)) {
		d.bad = true
		return ""
	}
	return string(d.take(int(n)))
}

func (d *decoder) strings() []string { return d.stringsUpTo(MaxWords) }

func (d *decoder) stringsUpTo(limit uint32) []string {
	var list []string
	for range d.count(limit) {
		list = append(list, d.string())
	}
	return list
}

func (d *decoder) count(limit uint32) uint32 {
	n := d.u32()
	if n > limit {
		d.bad = true
		return 0
	}
	return n
}

func (d *decoder) segment() Segment { return Segment{Off: d.u64(), Len: d.u64()} }

// otherVersion ends the reading of a message of another version.
func (d *decoder) otherVersion() error {
	if d.bad {
		return ErrMalformed
	}
	return ErrVersion
}

func (d *decoder) end() error {
	if d.bad || len(d.b) != 0 {
		return ErrMalformed
	}
	return nil
}
