package resultcache

import (
	"crypto/sha256"
	"fmt"

	"github.com/rdistcc/rdistcc/internal/wire"
)

// A value is what another program, such as ccache, has kept among the results. It is an Entry with one output, whose
// name depends on that program and on what it calls the value, so it never is that of a compile.

// valueVersion is the first thing that the Key of a value depends on.
const valueVersion = "rdistcc value 1"

// ValueKeyOf returns the Key of what a program has kept under a name of its own.
func ValueKeyOf(program string, name []byte) Key {
	k := make([]byte, 0, 256)
	k = wire.AppendString(k, valueVersion)
	k = wire.AppendString(k, program)
	k = wire.AppendString(k, string(name))
	return sha256.Sum256(k)
}

// AppendValue appends a value to dst as it is kept. It is not packed: programs that keep much pack it themselves.
func AppendValue(dst []byte, key Key, from Origin, value []byte) ([]byte, error) {
	if len(value) > MaxLen {
		return dst, fmt.Errorf("%w: it has %d bytes", ErrTooBig, len(value))
	}
	r := Raw{Key: key, Origin: from, Files: []RawFile{{Len: uint32(len(value))}}, Outputs: value}
	dst, err := r.AppendFront(dst)
	if err != nil {
		return dst, err
	}
	return append(dst, value...), nil
}

// Value returns the value that e is. The error wraps ErrDamaged.
func (e *Entry) Value() ([]byte, error) {
	if e.Exit != 0 || len(e.Stdout) > 0 || len(e.Stderr) > 0 || len(e.Files) != 1 || e.Files[0].Index != 0 {
		return nil, fmt.Errorf("%w: it is the result of a compile", ErrDamaged)
	}
	return e.Files[0].Data, nil
}
