package equal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
)

// farmVerbs are what can happen to a farm between two compiles.
var farmVerbs = map[string]func(context.Context, *ground) error{
	"restart-manager": func(ctx context.Context, g *ground) error {
		return errors.Join(g.Manager.Stop(), g.StartManager(ctx, "--hosts", g.hosts))
	},
	"kill-manager": func(ctx context.Context, g *ground) error {
		g.Manager.Kill()
		return g.StartManager(ctx, "--hosts", g.hosts)
	},
	"restart-daemons": func(ctx context.Context, g *ground) error {
		for i, d := range g.Daemons {
			if err := errors.Join(d.Stop(), g.StartDaemonAgain(ctx, i)); err != nil {
				return err
			}
		}
		return nil
	},
	"kill-daemons": func(ctx context.Context, g *ground) error {
		for i, d := range g.Daemons {
			d.Kill()
			if err := g.StartDaemonAgain(ctx, i); err != nil {
				return err
			}
		}
		return nil
	},
}

// another returns a place with a farm of its own, and with a second manager for it, whose directory is $OTHER.
func (g *ground) another(t *testing.T) (*place, error) {
	begin := func(name string) (*farm.Farm, error) {
		dir, err := os.MkdirTemp(g.root, name)
		if err := errors.Join(err, os.Chmod(dir, 0o755)); err != nil {
			return nil, err
		}
		f := farmtest.New(t, dir)
		f.Hidden, f.Vars = g.Hidden, g.Vars
		return f, os.Chmod(f.Dir, 0o755) // as the other farm's
	}
	f, err := begin("farm")
	if err != nil {
		return nil, err
	}
	own := &ground{Farm: f, root: g.root, client: g.client}
	d, err := f.StartDaemon(t.Context(), "three", "--jobs", "2")
	if err != nil {
		return nil, err
	}
	own.hosts = d.Addr
	if err := f.StartManager(t.Context(), "--hosts", own.hosts); err != nil {
		return nil, err
	}
	second, err := begin("other")
	if err != nil {
		return nil, err
	}
	own.other = second.Dir
	if err := second.StartManager(t.Context(), "--hosts", own.hosts); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(g.client, "farm")
	if err != nil {
		return nil, err
	}
	p := &place{g: own, dir: dir}
	p.work, p.tmp = filepath.Join(p.dir, "w"), filepath.Join(p.dir, "tmp")
	return p, nil
}
