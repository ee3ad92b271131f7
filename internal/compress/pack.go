// Package compress makes sources and results smaller for slow networks: one zstd frame
// each (RFC 8878), at the fastest level, that says how long it is unpacked.
package compress

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Err is what Unpack's errors wrap: the frame is none of Pack's, or was changed.
var Err = errors.New("not a packed text")

// encoder and decoder keep the working memory of as many calls as run at a time, one
// a core, and let further calls wait. A frame has no checksum of its own: what is
// unpacked has a digest.
var (
	encoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)),
			zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true),
			zstd.WithSingleSegment(true)) // or short frames would not say their length
		if err != nil {
			panic("pack: options of the encoder: " + err.Error()) // they are constants
		}
		return e
	})
	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(runtime.GOMAXPROCS(0)), zstd.WithDecoderLowmem(true),
			zstd.IgnoreChecksum(true), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			panic("pack: options of the decoder: " + err.Error())
		}
		return d
	})
)

// Bound is how long n bytes can become, in bytes: a dst with that capacity left is
// not allocated anew.
func Bound(n int) int { return encoder().MaxEncodedSize(n) }

// Pack appends src to dst as one frame. It waits while as many calls as there are
// cores run. There is no error that a caller could cause.
func Pack(dst, src []byte) ([]byte, error) { return encoder().EncodeAll(src, dst), nil }

// Len says how many bytes a frame of Pack's claims to hold unpacked.
func Len(src []byte) (uint64, error) {
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return 0, fmt.Errorf("%w: %w", Err, err)
	}
	if h.Skippable || !h.HasFCS || h.DictionaryID != 0 {
		return 0, fmt.Errorf("%w: a frame that says no length, or needs more than itself", Err)
	}
	return h.FrameContentSize, nil
}

// Unpack appends what src holds, one frame of Pack's and nothing behind it, to dst;
// at most max bytes, and never more memory than the frame says or than max. Errors
// wrap Err; dst's content is then as it was, the rest of its capacity may not be.
func Unpack(dst, src []byte, max uint64) ([]byte, error) {
	n, err := Len(src)
	if err != nil {
		return dst, err
	}
	if n > max {
		return dst, fmt.Errorf("%w: %d bytes, at most %d were expected", Err, n, max)
	}
	old := len(dst)
	if n > uint64(cap(dst)-old) {
		dst = append(make([]byte, 0, uint64(old)+n), dst...)
	}
	// The capacity bounds what is unpacked, whatever the frame goes on to say.
	out, err := decoder().DecodeAll(src, dst[:old:uint64(old)+n])
	if err != nil {
		return dst, fmt.Errorf("%w: %w", Err, err)
	}
	if uint64(len(out)-old) != n {
		return dst, fmt.Errorf("%w: %d bytes instead of the %d that it says", Err, len(out)-old, n)
	}
	return dst[:len(out)], nil
}
