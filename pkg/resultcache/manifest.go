package resultcache

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/internal/wire"
)

// Manifest lists results of compiles that differ in nothing but the contents of files. Each has a Key of its
// own; the Manifest says of which of the files the content did not matter to it, because it was not read.
type Manifest struct {
	Key   // ManifestKeyOf
	Items []Item
}

// Item is one result of a Manifest.
type Item struct {
	Unread []byte            // which files it has not read (inputs.Unread)
	Sum    [sha256.Size]byte // over the inputs without their contents (inputs.Set.SumRead)
	Result Key
}

// Layout of a manifest:
//
//	0         8         40        72
//	| magic   | key     | sum     | items ... |
//
// sum is the SHA-256 of magic, key and items.
const (
	manifestMagic = "rdistcm\x01" // ends with the version of the format

	// MaxItems is how many results a Manifest has at most: enough for the states between which people
	// go back and forth.
	MaxItems = 8
	// maxUnread bounds Item.Unread, in bytes.
	maxUnread = 8 << 10
	// MaxManifest bounds a manifest as it is kept, in bytes.
	MaxManifest = headAt + 4 + MaxItems*(4+maxUnread+2*sha256.Size)
)

// ManifestKeyOf returns the Key of the Manifest for a job and a toolchain. inputs is the sum over all inputs
// without the contents that may not matter (inputs.Set.SumSpare).
func ManifestKeyOf(tc unit.ToolchainID, b *job.Body, inputs [sha256.Size]byte) Key {
	return keyOf("manifest of "+keyVersion, tc, b, inputs)
}

// Add puts an item in front, in place of one for the same inputs, and drops the last one if there are too many.
// It reports whether m has changed in anything but the order.
func (m *Manifest) Add(item Item) (changed bool) {
	i := slices.IndexFunc(m.Items, func(x Item) bool { return x.Sum == item.Sum && bytes.Equal(x.Unread, item.Unread) })
	if i >= 0 {
		if m.Items[i].Result == item.Result {
			return false
		}
		m.Items = slices.Delete(m.Items, i, i+1)
	}
	m.Items = slices.Insert(m.Items, 0, item)
	m.Items = m.Items[:min(len(m.Items), MaxItems)]
	return true
}

// Append appends m as it is kept to dst.
func (m *Manifest) Append(dst []byte) ([]byte, error) {
	at := len(dst)
	dst = append(append(dst, manifestMagic...), m.Key[:]...)
	dst = append(dst, make([]byte, sha256.Size)...)
	dst = wire.AppendUint32(dst, uint32(len(m.Items)))
	if len(m.Items) > MaxItems {
		return dst[:at], fmt.Errorf("manifest of %d results: too many", len(m.Items))
	}
	for i := range m.Items {
		x := &m.Items[i]
		if len(x.Unread) > maxUnread {
			return dst[:at], fmt.Errorf("manifest for %d files: too many", 8*len(x.Unread))
		}
		dst = wire.AppendString(dst, string(x.Unread))
		dst = append(append(dst, x.Sum[:]...), x.Result[:]...)
	}
	sum := sumOf(dst[at:])
	copy(dst[at+sumAt:], sum[:])
	return dst, nil
}

// DecodeManifest reads a manifest that a store has returned for key. Its errors wrap ErrDamaged or ErrVersion. It
// keeps no part of b.
func DecodeManifest(b []byte, key Key) (*Manifest, error) {
	switch {
	case len(b) < headAt+4 || len(b) > MaxManifest:
		return nil, fmt.Errorf("%w: a manifest of %d bytes", ErrDamaged, len(b))
	case string(b[:keyAt-1]) != manifestMagic[:keyAt-1]:
		return nil, fmt.Errorf("%w: something else is in the place of a manifest", ErrDamaged)
	case b[keyAt-1] != manifestMagic[keyAt-1]:
		return nil, ErrVersion
	case Key(b[keyAt:sumAt]) != key:
		return nil, fmt.Errorf("%w: it is the manifest of another compile", ErrDamaged)
	case sumOf(b) != [sha256.Size]byte(b[sumAt:headAt]):
		return nil, fmt.Errorf("%w: the manifest's sum differs", ErrDamaged)
	}
	m := &Manifest{Key: key}
	d := wire.Reader[[]byte]{Rest: b[headAt:]}
	n := d.Count(4 + 2*sha256.Size)
	if n > MaxItems {
		d.Fail("too many results")
		n = 0
	}
	for range n {
		x := Item{Unread: []byte(d.Text())}
		copy(x.Sum[:], d.Take(len(x.Sum)))
		copy(x.Result[:], d.Take(len(x.Result)))
		m.Items = append(m.Items, x)
	}
	if fault := d.End(); fault != "" {
		return nil, fmt.Errorf("%w: the manifest is %s", ErrDamaged, fault)
	}
	return m, nil
}
