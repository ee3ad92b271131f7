package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// params are sent from the client to the server before anything else: as private data of the MPA Request,
// or as the first bytes of a raw TCP connection.
type params struct {
	Magic [4]byte
	Test  uint8
	Flags uint8
	Size  uint32
	Depth uint32
	FPDU  uint32
}

// Bits of params.Flags.
const (
	flagCRC     = 1 << iota
	flagMarkers // the server must demand them too
	flagMore    // another size of a sweep follows
)

var paramsMagic = [4]byte{'r', 'd', 'p', '2'}

var paramsSize = binary.Size(params{})

func (o *options) params() []byte {
	p := params{paramsMagic, o.t.id, 0, uint32(o.size), uint32(o.depth), uint32(o.fpdu)}
	for bit, set := range map[uint8]bool{flagCRC: o.crc, flagMarkers: o.markers, flagMore: o.more} {
		if set {
			p.Flags |= bit
		}
	}
	b, err := binary.Append(nil, binary.BigEndian, &p)
	if err != nil {
		panic("params: a field without a fixed size: " + err.Error())
	}
	return b
}

// parseParams parses what a client has sent to the server of test t.
func parseParams(b []byte, t *test) (*options, error) {
	var p params
	if len(b) != paramsSize {
		return nil, fmt.Errorf("%d bytes of parameters instead of %d: not rdistcc-perf, or another version", len(b), paramsSize)
	}
	if err := binary.Read(bytes.NewReader(b), binary.BigEndian, &p); err != nil {
		return nil, err
	}
	if p.Magic != paramsMagic {
		return nil, errors.New("the peer is not rdistcc-perf, or another version")
	}
	if p.Test != t.id {
		return nil, fmt.Errorf("this server runs %s", t.name)
	}
	o := &options{
		t: t, client: "-", size: sizeFlag(p.Size), depth: int(p.Depth), qps: 1, duration: 1, fpdu: sizeFlag(p.FPDU),
		crc: p.Flags&flagCRC != 0, markers: p.Flags&flagMarkers != 0, more: p.Flags&flagMore != 0,
	}
	return o, o.check()
}
