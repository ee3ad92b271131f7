package proto

import (
	"encoding/binary"
	"fmt"
)

// MessageSize is the length of a message in bytes.
const MessageSize = 4

// MaxArg is the largest argument of a message.
const MaxArg = 1<<29 - 1

// Op is the type of a message, its upper three bits.
type Op uint8

// Types of messages. 1, 3 and 5 are reserved, and 2 never leaves librdmacm.
const (
	OpData    Op = 0 // Arg bytes were written behind those before them
	OpWrite   Op = 2
	OpCredit  Op = 4 // data messages up to number Arg may be sent; look at the table
	OpIOMap   Op = 6 // entry Arg of the map table was written
	OpControl Op = 7 // Arg is one of the following
)

// Arguments of OpControl.
const (
	Disconnect = 0 // the sender neither sends nor receives any more
	KeepAlive  = 1 // nothing has happened
	Shutdown   = 2 // the sender sends no more data
)

// Message is a message: a type, and an argument of 29 bits.
//
//	31   29 28                                     0
//	| type  | argument                             |
type Message struct {
	Op  Op
	Arg uint32
}

// Append appends the message in the given byte order.
func (m Message) Append(b []byte, order binary.AppendByteOrder) []byte {
	return order.AppendUint32(b, uint32(m.Op)<<29|m.Arg&MaxArg)
}

// ParseMessage parses a received message, which must be of MessageSize bytes.
func ParseMessage(b []byte, order binary.ByteOrder) (Message, error) {
	if len(b) != MessageSize {
		return Message{}, fmt.Errorf("%w: message of %d bytes instead of %d", ErrProtocol, len(b), MessageSize)
	}
	v := order.Uint32(b)
	m := Message{Op(v >> 29), v & MaxArg}
	switch m.Op {
	case OpData, OpCredit, OpIOMap:
	case OpControl:
		if m.Arg > Shutdown {
			return m, fmt.Errorf("%w: control message %d", ErrProtocol, m.Arg)
		}
	default:
		return m, fmt.Errorf("%w: message of reserved type %d", ErrProtocol, m.Op)
	}
	return m, nil
}
