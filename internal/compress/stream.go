package compress

import (
	"io"

	"github.com/klauspost/compress/zstd"
)

// streamWindow bounds what unpacking a stream takes of memory, in bytes.
const streamWindow = 16 << 20

// Reader returns a reader of what r has packed by Copy, or by any program that makes zstd frames. The caller closes it.
func Reader(r io.Reader) (io.ReadCloser, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(streamWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

// Copy packs everything that r has, of any length, to w.
func Copy(w io.Writer, r io.Reader) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(streamWindow/2))
	if err != nil {
		return err
	}
	if _, err := io.Copy(z, r); err != nil {
		z.Close()
		return err
	}
	return z.Close()
}
