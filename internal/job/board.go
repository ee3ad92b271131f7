package job

import (
	"encoding/binary"
	"errors"

	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/internal/wire"
)

// BoardLen is the length of a load board, in bytes.
const BoardLen = 256

// maxSpeeds is how many toolchains fit on a board.
const maxSpeeds = 8

// NoPressure stands for a figure of Pressure that the host does not provide.
const NoPressure = 0xffff

// Board is a daemon's state in its memory, for managers to read by RDMA Read without involving
// the daemon, even while it is changing it. Sequence number and checksum tell a reader whether it has
// one state or parts of two.
//
//	0     8        16     37         43 44        ...      240   248   256 bytes
//	| seq | uptime | load | pressure | n | n speeds | zeros | sum | seq |
type Board struct {
	Seq      uint64 // grows with each change
	Uptime   uint64 // milliseconds since the daemon's start, when this was written
	Load     Load
	Pressure Pressure
	Speeds   []Speed // of the toolchains used last
}

// Pressure is the share of the last ten seconds in which some process waited for a resource, in
// hundredths of a percent, or NoPressure (Linux PSI, "some avg10").
type Pressure struct {
	CPU    uint16 `json:"cpu"`
	Memory uint16 `json:"memory"`
	IO     uint16 `json:"io"`
}

// Speed is how fast a toolchain compiles here.
type Speed struct {
	Toolchain unit.ToolchainID
	Rate      uint32 // KiB of text per second of CPU time
}

// ErrTorn means that the board changed while it was read: read again.
var ErrTorn = errors.New("load board changed while it was read")

// Append appends the encoding of b, of BoardLen bytes, to dst. It leaves out speeds that do not
// fit.
func (b *Board) Append(dst []byte) []byte {
	start := len(dst)
	dst = wire.AppendUint64(dst, b.Seq)
	dst = wire.AppendUint64(dst, b.Uptime)
	dst = b.Load.appendTo(dst)
	dst = wire.AppendUint16(dst, b.Pressure.CPU)
	dst = wire.AppendUint16(dst, b.Pressure.Memory)
	dst = wire.AppendUint16(dst, b.Pressure.IO)
	n := min(len(b.Speeds), maxSpeeds)
	dst = append(dst, byte(n))
	for i := range b.Speeds[:n] {
		dst = append(dst, b.Speeds[i].Toolchain[:]...)
		dst = wire.AppendUint32(dst, b.Speeds[i].Rate)
	}
	for len(dst)-start < BoardLen-16 {
		dst = append(dst, 0)
	}
	dst = wire.AppendUint64(dst, boardSum(dst[start:]))
	return wire.AppendUint64(dst, b.Seq)
}

// ParseBoard decodes a board, which must be the whole of p. Its error is ErrTorn or an
// ErrMalformed.
func ParseBoard(p []byte) (*Board, error) {
	if len(p) != BoardLen {
		return nil, malformed("board length")
	}
	if binary.LittleEndian.Uint64(p) != binary.LittleEndian.Uint64(p[BoardLen-8:]) || binary.LittleEndian.Uint64(p[BoardLen-16:]) != boardSum(p[:BoardLen-16]) {
		return nil, ErrTorn
	}
	r := newReader(p[:BoardLen-16])
	var b Board
	b.Seq = r.Uint64()
	b.Uptime = r.Uint64()
	b.Load.parse(r)
	b.Pressure = Pressure{r.Uint16(), r.Uint16(), r.Uint16()}
	for range r.count(maxSpeeds) {
		b.Speeds = append(b.Speeds, Speed{Toolchain: r.array16(), Rate: r.Uint32()})
	}
	for _, c := range r.Rest {
		if c != 0 {
			r.Fail("board has bytes behind its end")
			break
		}
	}
	if r.Fault != "" {
		return nil, malformed(r.Fault)
	}
	return &b, nil
}

// boardSum returns the FNV-1a sum of p: it guards against chance, not against the daemon.
func boardSum(p []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range p {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}
