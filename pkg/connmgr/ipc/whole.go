package ipc

import "github.com/rdistcc/rdistcc/internal/wire"

// Whole is a command as the wrapper was started with it. The wrapper has not read it: the manager does that, and makes the Lease by
// itself, which it then answers. If it leaves that to the wrapper, it answers Ask, and a Lease may follow on the same connection.
//
// The wrapper writes this frame without a runtime below it (package quick), from the memory in which the kernel has put words and
// variables. So these are no lists.
type Whole struct {
	Version  uint8
	Terminal bool // as in Command
	// SelfDev and SelfIno identify the wrapper's program: a compiler is looked for behind it.
	SelfDev, SelfIno uint64
	View             View   // of the working directory
	Words            string // argv, each word with a NUL behind it
	Environ          string // the environment, likewise
}

// Append adds the frame of m to b.
func (m *Whole) Append(b []byte) []byte {
	b, at := begin(b, KindWhole)
	b = wire.AppendBool(append(b, m.Version), m.Terminal)
	for _, n := range [...]uint64{m.SelfDev, m.SelfIno, m.View.Mounts, m.View.RootDev, m.View.Root, m.View.CwdDev, m.View.CwdIno, m.View.Rights} {
		b = wire.AppendUint64(b, n)
	}
	b = wire.AppendString(b, m.Words)
	return end(wire.AppendString(b, m.Environ), at)
}

// Parse reads a Whole. ErrVersion leaves all fields but Version unset.
func (m *Whole) Parse(p []byte) error {
	d := newDecoder(p)
	*m = Whole{Version: d.Uint8()}
	if m.Version != Version {
		return d.otherVersion()
	}
	m.Terminal, m.SelfDev, m.SelfIno = d.Bool(), d.Uint64(), d.Uint64()
	m.View = View{d.Uint64(), d.Uint64(), d.Uint64(), d.Uint64(), d.Uint64(), d.Uint64()}
	m.Words, m.Environ = d.Text(), d.Text()
	return d.end()
}

// Place says, ahead of Leased and Result, that the compile has gone well and without a word, and where its files belong: all that
// the wrapper has to do is to put them there. It may leave the frame aside and go by the Result. The files are in the order in which
// they are placed.
type Place struct {
	Files  []Placed
	Report string // the line for RDISTCC_REPORT, with its end
}

// Placed is one file of the sink.
type Placed struct {
	How  uint8  // PlacedInPlace and so on
	Name string // as the compiler would use it
	Dir  string // a name for its directory that ends in "."
	Temp string // PlacedRenamed: the file that gets the name when it is complete
	Segment
}

// Values of Placed.How, for what is in the place of a file. A file that is neither missing nor a regular one is the Result's.
const (
	PlacedInPlace  = iota // an existing file is truncated
	PlacedUnlinked        // an existing file that is not empty is removed first
	PlacedRenamed         // Temp, a new file, replaces it
)

// Append adds the frame of m to b. Strings end in a NUL each, as system calls take names.
func (m *Place) Append(b []byte) []byte {
	b, at := begin(b, KindPlace)
	b = wire.AppendUint32(b, uint32(len(m.Files)))
	for _, f := range m.Files {
		b = append(b, f.How)
		for _, name := range [...]string{f.Name, f.Dir, f.Temp} {
			b = append(wire.AppendString(b, name), 0)
		}
		b = appendSegment(b, f.Segment)
	}
	b = append(wire.AppendString(b, m.Report), 0)
	return end(b, at)
}

// Parse reads a Place.
func (m *Place) Parse(p []byte) error {
	d := newDecoder(p)
	text := func() string {
		s := d.Text()
		if d.Uint8() != 0 {
			d.Fail("not the end of a name")
		}
		return s
	}
	*m = Place{}
	for range d.count(1+3*5+16, maxFiles) {
		m.Files = append(m.Files, Placed{How: d.Uint8(), Name: text(), Dir: text(), Temp: text(), Segment: d.segment()})
	}
	m.Report = text()
	return d.end()
}
