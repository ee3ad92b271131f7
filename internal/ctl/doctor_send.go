package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/streams"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// packing describes a compiler once, for the hosts that lack it.
type packing struct {
	tc     toolchain.Toolchain
	once   sync.Once
	parcel *parcel.Parcel
	err    error
}

func (k *packing) pack(ctx context.Context) (*parcel.Parcel, error) {
	k.once.Do(func() { k.parcel, k.err = parcel.Make(ctx, &k.tc) })
	return k.parcel, k.err
}

// called returns the name by which a host with these toolchains has the compiler; ok is false if it does not have it.
func (t *localTool) called(ctx context.Context, ids []unit.ToolchainID) (id unit.ToolchainID, ok bool) {
	if slices.Contains(ids, t.ID) {
		return t.ID, true
	}
	if len(ids) == 0 {
		return id, false
	}
	for _, k := range t.packing {
		if p, err := k.pack(ctx); err == nil && slices.Contains(ids, p.ID) {
			return p.ID, true
		}
	}
	return id, false
}

// unsendable returns why a host that lacks a compiler cannot be sent it, or "". about is what the host says of itself.
func (d *doctor) unsendable(ctx context.Context, t *localTool, about *parcel.About) string {
	p, err := t.packing[0].pack(ctx)
	if err != nil {
		return err.Error()
	}
	if why := p.Needs.Missing(about); why != "" {
		return t.Name() + " " + why
	}
	if contents, names := p.Room(); contents+names > about.Room {
		return fmt.Sprintf("%s takes %s, and the host has room for %s (toolchains.size there)", t.Name(), figure.Bytes(contents+names), figure.Bytes(about.Room))
	}
	return ""
}

// takes asks a host what toolchains it takes. The error is why it takes none.
func (d *doctor) takes(ctx context.Context, dev iwarp.Device, addr string) (*parcel.About, error) {
	if !d.cfg.Toolchains.Send {
		return nil, errors.New("the connection manager here sends none (toolchains.send)")
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return streams.Dial(ctx, dev, addr, streams.Options{Service: streams.Toolchains, Key: d.id.Key()})
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host/about", nil)
	if err != nil {
		return nil, err
	}
	a, err := (&http.Client{Transport: t}).Do(r)
	if e := new(url.Error); errors.As(err, &e) {
		err = e.Err
	}
	if no := new(streams.Rejected); errors.As(err, &no) {
		return nil, errors.New(no.Detail)
	}
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	var about parcel.About
	if a.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(a.Body, 4096)).Decode(&about) != nil {
		return nil, fmt.Errorf("its rdistccd does not answer as it should (%s)", a.Status)
	}
	return &about, nil
}
