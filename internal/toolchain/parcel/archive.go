package parcel

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/rdistcc/rdistcc/internal/compress"
)

// Archive writes p and the files that it describes to w, as a tar compressed with zstd: first DescriptionName with the encoding
// of p, then each file and link below its name without the leading slash. The same toolchain gives the same archive.
// The error wraps ErrChanged if a file is no longer what p says. If ctx ends, Archive returns its error soon.
func (p *Parcel) Archive(ctx context.Context, w io.Writer) error {
	r, out := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out.CloseWithError(p.tar(out))
	}()
	stop := context.AfterFunc(ctx, func() { out.CloseWithError(ctx.Err()) })
	err := compress.Copy(w, r)
	stop()
	r.Close()
	<-ended
	return err
}

// DescriptionName is the name of the first file in an archive.
const DescriptionName = "rdistcc-parcel"

func (p *Parcel) tar(w io.Writer) error {
	t := tar.NewWriter(w)
	encoded := p.Append(nil)
	if err := t.WriteHeader(&tar.Header{Name: DescriptionName, Mode: 0o644, Size: int64(len(encoded)), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	if _, err := t.Write(encoded); err != nil {
		return err
	}
	for i := range p.Entries {
		if err := p.Entries[i].tar(t); err != nil {
			return err
		}
	}
	return t.Close()
}

// tar adds one entry.
func (e *Entry) tar(t *tar.Writer) error {
	h := &tar.Header{Name: strings.TrimPrefix(e.Name, "/"), Mode: 0o777, Typeflag: tar.TypeSymlink, Linkname: e.Target}
	if e.Link() {
		return t.WriteHeader(h)
	}
	h.Typeflag, h.Mode, h.Size = tar.TypeReg, 0o644, int64(e.Len)
	if e.Exec {
		h.Mode = 0o755
	}
	f, err := e.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	if _, err := io.Copy(t, f); err != nil {
		return fmt.Errorf("archive %s: %w", e.Name, err)
	}
	return nil
}
