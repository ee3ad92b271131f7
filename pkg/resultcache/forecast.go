package resultcache

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/internal/wire"
)

// Forecast names the results that the last builds of a checkout have wanted, so that the next one can have them fetched before it
// asks. A store keeps it as a value, and the results once more in packs, as one request for many costs one round trip.
//
// It is a hint. What a pack has counts as what the store has: each entry is verified when it is asked for. So a wrong Forecast
// costs fetches and misses, and never makes a hit.
type Forecast struct {
	Packs  []Pack
	Absent []Absent
}

// Pack is a value that consists of entries, one behind the other.
type Pack struct {
	Key   Key
	Len   uint32 // of the value, in bytes
	Items []Packed
}

// Packed is an entry in a pack.
type Packed struct {
	Key      Key
	Off, Len uint32 // in the pack's value
	Age      uint8  // builds that have ended since it was wanted last
}

// Absent is a name under which commands have looked in vain before they found their results under another one.
type Absent struct {
	Key Key
	Age uint8
}

const (
	forecastVersion = 1
	// MaxPack bounds a pack, in bytes.
	MaxPack = 32 << 20
	// MaxForecast bounds a forecast as it is kept, in bytes.
	MaxForecast = 4 << 20

	packedLen = sha256.Size + 4 + 4 + 1
	absentLen = sha256.Size + 1
)

// ForecastKeyOf returns the Key of the forecast for builds that begin with a command: what it is about is told by the command
// alone, which is the same in each checkout and says nothing of the files' contents.
func ForecastKeyOf(tc unit.ToolchainID, b *job.Body) Key {
	return keyOf("rdistcc forecast 1", tc, b, [sha256.Size]byte{})
}

// PackKeyOf returns the Key of a pack.
func PackKeyOf(value []byte) Key {
	sum := sha256.Sum256(value)
	return sha256.Sum256(append([]byte("rdistcc pack 1\x00"), sum[:]...))
}

// Len returns how long f is as it is kept, in bytes.
func (f *Forecast) Len() int {
	n := 4 + 4 + 4 + len(f.Absent)*absentLen
	for i := range f.Packs {
		n += sha256.Size + 4 + 4 + len(f.Packs[i].Items)*packedLen
	}
	return n
}

// Append appends f as it is kept to dst.
func (f *Forecast) Append(dst []byte) []byte {
	dst = wire.AppendUint32(dst, forecastVersion)
	dst = wire.AppendUint32(dst, uint32(len(f.Packs)))
	for i := range f.Packs {
		p := &f.Packs[i]
		dst = wire.AppendUint32(append(dst, p.Key[:]...), p.Len)
		dst = wire.AppendUint32(dst, uint32(len(p.Items)))
		for _, x := range p.Items {
			dst = wire.AppendUint32(append(dst, x.Key[:]...), x.Off)
			dst = append(wire.AppendUint32(dst, x.Len), x.Age)
		}
	}
	dst = wire.AppendUint32(dst, uint32(len(f.Absent)))
	for _, x := range f.Absent {
		dst = append(append(dst, x.Key[:]...), x.Age)
	}
	return dst
}

// DecodeForecast reads what Append has written. Its errors wrap ErrDamaged, or are ErrVersion. It keeps no part of b.
func DecodeForecast(b []byte) (*Forecast, error) {
	d := wire.Reader[[]byte]{Rest: b}
	if len(b) > MaxForecast {
		return nil, fmt.Errorf("%w: a forecast of %d bytes", ErrDamaged, len(b))
	}
	switch v := d.Uint32(); {
	case v > forecastVersion:
		return nil, ErrVersion
	case v < forecastVersion:
		d.Fail("of no version")
	}
	f := &Forecast{}
	for range d.Count(sha256.Size + 4 + 4) {
		var p Pack
		copy(p.Key[:], d.Take(len(p.Key)))
		if p.Len = d.Uint32(); p.Len > MaxPack {
			d.Fail("a pack too long")
		}
		n := d.Count(packedLen)
		p.Items = make([]Packed, 0, n)
		for range n {
			var x Packed
			copy(x.Key[:], d.Take(len(x.Key)))
			x.Off, x.Len, x.Age = d.Uint32(), d.Uint32(), d.Uint8()
			if x.Off > p.Len || x.Len > p.Len-x.Off {
				d.Fail("a result beyond its pack")
			}
			p.Items = append(p.Items, x)
		}
		f.Packs = append(f.Packs, p)
	}
	for range d.Count(absentLen) {
		var x Absent
		copy(x.Key[:], d.Take(len(x.Key)))
		x.Age = d.Uint8()
		f.Absent = append(f.Absent, x)
	}
	if fault := d.End(); fault != "" {
		return nil, fmt.Errorf("%w: the forecast is %s", ErrDamaged, fault)
	}
	return f, nil
}

// live returns how many bytes of p are results, and how many of those were wanted by the last build.
func (p *Pack) live() (all, wanted uint64) {
	for _, x := range p.Items {
		all += uint64(x.Len)
		if x.Age == 0 {
			wanted += uint64(x.Len)
		}
	}
	return all, wanted
}

// Follow adds to f, which names what is new, what before has named, unless that is nil: what the build has used, and what was wanted
// by one of the last builds, of which there were at most last. A build that has used some of it, but less than half, is no measure of
// what is wanted. One that has used nothing has changed everything, or is another project's.
func (f *Forecast) Follow(before *Forecast, used map[Key]struct{}, last uint8) {
	if before == nil {
		return
	}
	fresh := make(map[Key]struct{})
	for i := range f.Packs {
		for _, x := range f.Packs[i].Items {
			fresh[x.Key] = struct{}{}
		}
	}
	for _, x := range f.Absent {
		fresh[x.Key] = struct{}{}
	}
	all, hits := 0, 0
	for i := range before.Packs {
		for _, x := range before.Packs[i].Items {
			all++
			if _, hit := used[x.Key]; hit {
				hits++
			}
		}
	}
	grows := uint8(0)
	if 2*hits >= all || hits == 0 {
		grows = 1
	}
	aged := func(key Key, age uint8) (uint8, bool) {
		if _, replaced := fresh[key]; replaced {
			return 0, false
		}
		if _, hit := used[key]; hit {
			return 0, true
		}
		return age + grows, age+grows <= last
	}
	var packs []Pack
	for _, p := range before.Packs {
		var items []Packed
		for _, x := range p.Items {
			if age, keep := aged(x.Key, x.Age); keep {
				x.Age = age
				items = append(items, x)
			}
		}
		if p.Items = items; len(items) > 0 {
			packs = append(packs, p)
		}
	}
	f.Packs = append(packs, f.Packs...)
	for _, x := range before.Absent {
		if age, keep := aged(x.Key, x.Age); keep {
			f.Absent = append(f.Absent, Absent{x.Key, age})
		}
	}
}

// Thin removes packs from f, and returns them, whose results are to be put together: those that are mostly of no use any more, and if
// there are more than most besides, the smallest, or all if they have at most so many bytes together. What becomes of them is to be at
// that place among those that stay: their order is that in which a build wants them.
func (f *Forecast) Thin(most int, together uint64) (out []Pack, at int) {
	stays := make([]bool, len(f.Packs))
	var lens []uint32
	sum := uint64(0)
	for i := range f.Packs {
		p := &f.Packs[i]
		if live, _ := p.live(); 2*live >= uint64(p.Len) {
			stays[i] = true
			lens, sum = append(lens, p.Len), sum+uint64(p.Len)
		}
	}
	if len(lens) > most {
		half := most / 2 // stay, so that this is not to be done by each build
		if sum <= together {
			half = 0
		}
		slices.Sort(lens)
		n := 0
		for i := range f.Packs {
			if stays[i] = stays[i] && n < half && f.Packs[i].Len >= lens[len(lens)-half]; stays[i] {
				n++
			}
		}
	}
	var keep []Pack
	for i, p := range f.Packs {
		switch {
		case stays[i]:
			keep = append(keep, p)
		case len(out) == 0:
			at = len(keep)
			fallthrough
		default:
			out = append(out, p)
		}
	}
	f.Packs = keep
	return out, at
}

// Split divides items, whose entries are one behind the other, into at most n packs, which have no Keys yet. A build waits for the first
// pack before it has anything, and for the last one with all that this has: so the first two are small, and the others equally long.
func Split(items []Packed, n int, least uint32) (packs []Pack) {
	rest := uint32(0)
	for _, x := range items {
		rest += x.Len
	}
	size := max(rest/32, least)
	var p Pack
	for _, x := range items {
		if len(p.Items) > 0 && p.Len+x.Len > size && len(packs)+1 < n {
			packs, rest, p = append(packs, p), rest-p.Len, Pack{}
			if size *= 2; len(packs) > 1 {
				size = max(rest/uint32(n-len(packs)), least)
			}
		}
		x.Off = p.Len
		p.Len += x.Len
		p.Items = append(p.Items, x)
	}
	if len(p.Items) > 0 {
		packs = append(packs, p)
	}
	return packs
}

// Shrink removes packs until all have at most so many bytes, and f is not too long to be kept: those first of which the last build
// has wanted least.
func (f *Forecast) Shrink(most int64) {
	for len(f.Packs) > 0 {
		sum, worst, share := int64(0), 0, 2.0
		for i := range f.Packs {
			p := &f.Packs[i]
			sum += int64(p.Len)
			if _, wanted := p.live(); float64(wanted)/float64(max(p.Len, 1)) <= share {
				worst, share = i, float64(wanted)/float64(max(p.Len, 1))
			}
		}
		if sum <= most && f.Len() <= MaxForecast {
			return
		}
		f.Packs = slices.Delete(f.Packs, worst, worst+1)
	}
	f.Absent = f.Absent[:min(len(f.Absent), MaxForecast/absentLen-1)]
}
