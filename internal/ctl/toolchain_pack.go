package ctl

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
)

func (c *ctl) toolchainPackCommand() *cobra.Command {
	var asJSON bool
	var file string
	cmd := &cobra.Command{
		Use:   "pack COMPILER",
		Short: "Show what hosts are sent of a compiler, or write it to an archive",
		Long: "Lists the files that a host is sent of COMPILER, with their sizes and digests, and what the host must be. With --output\n" +
			"it writes an archive instead, a tar compressed with zstd, to look at the files or to keep them: its first file is the\n" +
			"description that hosts get. The same compiler always gives the same archive. Neither a manager nor a host is asked.",
		Example: "  rdistcc toolchain pack gcc-12\n  rdistcc toolchain pack clang -o clang.tar.zst && tar -tvf clang.tar.zst",
		Args:    one("COMPILER"),
		RunE: func(_ *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			err := c.pack(ctx, args[0], file, asJSON)
			if ctx.Err() != nil {
				return failf(reason.ExitGeneral, "interrupted")
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write an archive to `FILE`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// packed is what `toolchain pack` tells.
type packed struct {
	Compiler string       `json:"compiler"`
	Path     string       `json:"path"`
	Target   string       `json:"target"`
	ID       string       `json:"id"` // of the parcel
	Machine  string       `json:"machine,omitempty"`
	Kernel   string       `json:"kernel,omitempty"`
	Bytes    uint64       `json:"bytes"` // of different contents
	Files    []packedFile `json:"files"`

	Archive      string `json:"archive,omitempty"`
	ArchiveBytes int64  `json:"archive_bytes,omitempty"`
}

type packedFile struct {
	Name   string `json:"name"`
	Link   string `json:"link,omitempty"` // where it leads
	Exec   bool   `json:"exec,omitempty"`
	Bytes  uint64 `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
}

// pack shows a compiler, or writes it to file. It ends early with ctx.
func (c *ctl) pack(ctx context.Context, name, file string, asJSON bool) error {
	path, err := c.compilerPath(name)
	if err != nil {
		return err
	}
	tools := c.tools
	if tools == nil {
		tools = &toolchain.Cache{Home: c.getenv("HOME")}
	}
	tc, err := tools.Identify(ctx, path)
	if err != nil {
		return failf(reason.ExitNoCompiler, "%v", err)
	}
	p, err := parcel.Make(ctx, &tc)
	if err != nil {
		return failf(reason.ExitNoCompiler, "%v", err)
	}
	x := describe(p)
	if file != "" {
		x.ArchiveBytes, err = writeNamed(ctx, file, func() { signal.Reset(syscall.SIGINT, syscall.SIGTERM) }, func(w io.Writer) error { return p.Archive(ctx, w) })
		if err != nil {
			return failf(reason.ExitIO, "%v", err)
		}
		x.Archive = file
	}
	if asJSON {
		return c.marshal(x)
	}
	return c.print(x.text())
}

func describe(p *parcel.Parcel) *packed {
	x := &packed{Compiler: p.Name(), Path: p.Exec, Target: p.Target, ID: hex.EncodeToString(p.ID[:]), Machine: p.Needs.Machine}
	if p.Needs.Kernel != (parcel.Version{}) {
		x.Kernel = p.Needs.Kernel.String()
	}
	_, x.Bytes = p.Contents()
	for i := range p.Entries {
		e := &p.Entries[i]
		f := packedFile{Name: e.Name, Link: e.Target}
		if !e.Link() {
			f.Exec, f.Bytes, f.SHA256 = e.Exec, e.Len, hex.EncodeToString(e.Sum[:])
		}
		x.Files = append(x.Files, f)
	}
	return x
}

func (x *packed) text() []byte {
	links := 0
	for i := range x.Files {
		if x.Files[i].Link != "" {
			links++
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s for %s, %s\n", x.Compiler, x.Target, x.Path)
	fmt.Fprintf(&b, "%s and %s, %s; toolchain %s\n", figure.Count(len(x.Files)-links, "file"), figure.Count(links, "link"), figure.Bytes(x.Bytes), x.ID)
	if x.Machine != "" {
		fmt.Fprintf(&b, "a host must be %s", x.Machine)
		if x.Kernel != "" {
			fmt.Fprintf(&b, " with Linux %s or newer", x.Kernel)
		}
		b.WriteByte('\n')
	}
	if x.Archive != "" {
		fmt.Fprintf(&b, "written to %s, %s\n", x.Archive, figure.Bytes(uint64(x.ArchiveBytes)))
		return b.Bytes()
	}
	b.WriteByte('\n')
	b.Write(table(func(w io.Writer) {
		fmt.Fprintln(w, "SIZE\tSHA-256\tNAME")
		for i := range x.Files {
			f := &x.Files[i]
			if f.Link != "" {
				fmt.Fprintf(w, "-\t-\t%s -> %s\n", f.Name, f.Link)
				continue
			}
			fmt.Fprintf(w, "%s\t%.16s\t%s\n", figure.Bytes(f.Bytes), f.SHA256, f.Name)
		}
	}))
	return b.Bytes()
}
