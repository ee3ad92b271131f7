// Command image writes an OCI image with rdistcc's programs and nothing else: they are static, so it has no distribution in it.
// Times come from SOURCE_DATE_EPOCH, so that equal programs make equal images.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	root := flag.String("root", "", "`DIR` below which the programs are in usr/bin")
	version := flag.String("version", "devel", "`VERSION` that the image's labels name")
	out := flag.String("out", "", "`FILE` for the image: an OCI image layout in a tar archive")
	flag.Parse()
	if err := build(*root, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// build writes the image of the programs below root to out.
func build(root, version, out string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	made := time.Unix(seconds, 0).UTC()
	archive, err := files(root, made)
	if err != nil {
		return err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return err
	}
	image, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: made}, CreatedBy: "make package"},
	})
	if err != nil {
		return err
	}
	image = mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON)
	file, err := image.ConfigFile()
	if err != nil {
		return err
	}
	file = file.DeepCopy()
	file.Created, file.Architecture, file.OS = v1.Time{Time: made}, runtime.GOARCH, "linux"
	file.Config = v1.Config{
		Entrypoint:   []string{"/usr/bin/rdistccd"},
		Env:          []string{"PATH=/usr/bin", "XDG_CACHE_HOME=/var/cache"},
		ExposedPorts: map[string]struct{}{"7632/tcp": {}},
		User:         nobody,
		WorkingDir:   "/",
		StopSignal:   "SIGTERM", // which drains
		Labels: map[string]string{
			"org.opencontainers.image.title":       "rdistcc",
			"org.opencontainers.image.description": "Distributed C and C++ compilation over RDMA",
			"org.opencontainers.image.version":     version,
		},
	}
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return err
	}
	return write(image, version, out, made)
}

// nobody is the user and group that the programs run as, in numbers: Kubernetes' runAsNonRoot asks for that.
const nobody = "65534:65534"

// files returns the image's only layer, a tar archive.
func files(root string, made time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content []byte) error {
		h.Size, h.ModTime, h.Format = int64(len(content)), made, tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	dir := func(name string, mode int64, owner int) error {
		return add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner}, nil)
	}
	for _, d := range []struct {
		name  string
		mode  int64
		owner int
	}{
		{"etc", 0o755, 0}, {"etc/rdistcc", 0o755, 0}, {"tmp", 0o1777, 0}, {"usr", 0o755, 0}, {"usr/bin", 0o755, 0},
		{"var", 0o755, 0}, {"var/cache", 0o755, 65534},
	} {
		if err := dir(d.name, d.mode, d.owner); err != nil {
			return nil, err
		}
	}
	const users = "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"
	if err := add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, []byte(users)); err != nil {
		return nil, err
	}
	for _, program := range []string{"rdistcc", "rdistcc-cm", "rdistcc-perf", "rdistccd"} {
		name := path.Join("usr/bin", program)
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		if err := add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, content); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// write puts the image, as an OCI image layout, into a tar archive at out.
func write(image v1.Image, version, out string, made time.Time) (err error) {
	dir, err := os.MkdirTemp("", "rdistcc-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add:        image,
		Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": "rdistcc:" + version}},
	})
	if _, err := layout.Write(dir, index); err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	w := tar.NewWriter(f)
	// WalkDir goes by name, so the order is always the same.
	if err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		h := tar.Header{Typeflag: tar.TypeDir, Name: rel + "/", Mode: 0o755, ModTime: made, Format: tar.FormatPAX}
		if d.IsDir() {
			return w.WriteHeader(&h)
		}
		content, err := os.Open(name)
		if err != nil {
			return err
		}
		defer content.Close()
		info, err := content.Stat()
		if err != nil {
			return err
		}
		h.Typeflag, h.Name, h.Mode, h.Size = tar.TypeReg, rel, 0o644, info.Size()
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err = io.Copy(w, content)
		return err
	}); err != nil {
		return err
	}
	return w.Close()
}
