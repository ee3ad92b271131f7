// Package compress compresses sources and results for slow networks: each into one zstd frame (RFC 8878), at
// the fastest level, which states its unpacked length.
package compress

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Err is wrapped by Unpack's errors: the frame is not one of Pack's, or was changed.
var Err = errors.New("not a packed text")

// encoder and decoder keep the working memory of concurrent calls, one for each core, and make further
// calls wait. A frame has no checksum of its own, as what is unpacked has a digest.
var (
	encoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)),
			zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true),
			zstd.WithSingleSegment(true)) // otherwise short frames would not state their length
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

// Bound returns the largest size that n bytes can become: a dst with that capacity left is not reallocated.
func Bound(n int) int { return encoder().MaxEncodedSize(n) }

// Pack appends src to dst as one frame. It waits while as many calls as there are cores are running. No
// caller can cause an error.
func Pack(dst, src []byte) ([]byte, error) { return encoder().EncodeAll(src, dst), nil }

// Len returns how many bytes a frame of Pack's claims to hold unpacked.
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

// Unpack appends the content of src, which must be one frame of Pack's and nothing more, to dst: at most
// max bytes. It never uses more memory than the frame states or than max. Errors wrap Err; dst's content is
// then unchanged, the rest of its capacity may not be.
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
	// The capacity bounds what is unpacked, whatever the frame claims further on.
	out, err := decoder().DecodeAll(src, dst[:old:uint64(old)+n])
	if err != nil {
		return dst, fmt.Errorf("%w: %w", Err, err)
	}
	if uint64(len(out)-old) != n {
		return dst, fmt.Errorf("%w: %d bytes instead of the %d that it says", Err, len(out)-old, n)
	}
	return dst[:len(out)], nil
}
