package iwarptest

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
)

// Hex is a sequence of octets, in JSON a hexadecimal string.
type Hex []byte

// UnmarshalJSON decodes the string.
func (h *Hex) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	d, err := hex.DecodeString(s)
	*h = d
	return err
}

// HexNumber is a number, in JSON a string like "0x1a2b".
type HexNumber uint64

// UnmarshalJSON decodes the string.
func (n *HexNumber) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	_, err := fmt.Sscanf(s, "0x%x", (*uint64)(n))
	return err
}

// Vectors holds the known-answer frames and reactions of testdata/vectors; its README.md explains every
// field.
type Vectors struct {
	Vectors      []Vector      `json:"vectors"`
	Scenarios    []Scenario    `json:"scenarios"`
	Fixture      Fixture       `json:"reaction_fixture"`
	Reactions    []Reaction    `json:"reactions"`
	MPAReactions []MPAReaction `json:"mpa_reactions"`
}

// Vector is one frame. Kind is "mpa" or "fpdu".
type Vector struct {
	Name, Kind, Note string
	Hex              Hex
	Length           int

	Flags, Rev byte // mpa
	PDLength   int  `json:"pd_length"`

	Opcode       byte // fpdu, like all fields that follow
	ULPDU        Hex
	ULPDULength  int        `json:"ulpdu_length"`
	Pad          int        `json:"pad"`
	CRC32C       *HexNumber `json:"crc32c"` // nil: CRCs are off
	StreamOffset uint64     `json:"stream_offset"`
	Markers      []Marker
}

// Marker is the position of a marker in a frame, and its FPDUPTR.
type Marker struct {
	Offset  int    `json:"offset_in_fpdu"`
	FPDUPtr uint16 `json:"fpduptr"`
}

// Scenario is a conversation made of vectors.
type Scenario struct {
	Name, Description string
	Packets           []struct{ Dir, Vector string } // Dir: "O" from the initiator, "I" to it
}

// Fixture is the receiver that processes the reactions' frames.
type Fixture struct {
	IRD      int
	Receives []struct{ Length uint32 }
	Memory   []struct {
		STag   HexNumber
		BaseTO HexNumber `json:"base_to"`
		Length int
		PD     string // "QP": the QP's own
		Remote []string
	}
}

// Expect is a required reaction.
type Expect struct {
	Action              string // "terminate", "accept", "accept-unenhanced", "close", "read-response"
	Layer, EType, ECode uint8
	M, D, R             uint8
	STag, TO            HexNumber // of a "read-response"
}

// UnmarshalJSON decodes an object, or a string that is the action.
func (e *Expect) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &e.Action)
	}
	type plain Expect
	return json.Unmarshal(b, (*plain)(e))
}

// Reaction is one or more FPDUs for the fixture, and the required result.
type Reaction struct {
	Name, Note, Needs, Stream string
	Hex                       Hex
	Expect                    Expect
}

// MPAReaction is a start-up frame for a "responder" or an "initiator ...".
type MPAReaction struct {
	Name, Note, Role string
	Hex              Hex
	Expect           Expect
}

// ReadVectors reads a vectors.json.
func ReadVectors(path string) (*Vectors, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	v := new(Vectors)
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// Find returns the vector of that name, or nil.
func (v *Vectors) Find(name string) *Vector {
	for i := range v.Vectors {
		if v.Vectors[i].Name == name {
			return &v.Vectors[i]
		}
	}
	return nil
}
