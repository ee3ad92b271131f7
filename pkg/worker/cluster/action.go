package cluster

import (
	"crypto/sha256"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/rdistcc/rdistcc/internal/cas"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Command is what to run on the cluster. It does not change while it runs.
type Command struct {
	Compiler *toolchain.Toolchain
	Name     string   // the compiler's base name, which appears in messages
	Args     []string // its arguments
	Env      []string // NAME=VALUE
	Dir      string   // the working directory, absolute
	Links    []unit.Link
	Dirs     []string // that exist besides those of files; relative ones are below Dir
	Files    []File
	Outputs  []string // files that it may make; relative ones are below Dir
	Limit    time.Duration

	// Bounds in bytes: of one output, and of what is kept of stdout and of stderr.
	MaxFile, MaxPrinted int64
}

// File is a file that a command reads.
type File struct {
	Name    string // a relative one is below Command.Dir
	Content []byte
	Sum     [sha256.Size]byte // of Content
	Exec    bool
	Same    uint32 // 0, or 1 + the index of the file that it is another name of
}

// Outcome is what became of a command.
type Outcome struct {
	Exit    int
	Printed [2][]byte // stdout and stderr, MaxPrinted bytes and one more of them at most
	Outputs []*Output // in the order of Command.Outputs; nil: it was not made
	Ran     time.Duration
	Cached  bool // the server has not run it
}

// Output is a file that a command has made.
type Output struct {
	Content []byte
	Exec    bool
}

// action is a Command as the server knows it.
type action struct {
	digest *repb.Digest
	blobs  []cas.Blob // all that it consists of
	names  []string   // of the outputs, as the server is asked for them
}

// below returns a name as an absolute one, seen from dir. It is not cleaned: "a/.." does not cancel out if a is a link.
func below(dir, name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return dir + "/" + name
}

// action makes the action of a command whose toolchain's root is base.
func (o *Options) action(c *Command, base *directory) (*action, error) {
	r := on(base)
	if err := r.fill(c); err != nil {
		return nil, err
	}
	argv0, err := r.compiler(c)
	if err != nil {
		return nil, err
	}
	at, _, err := r.walk(nil, c.Dir, true)
	if err != nil {
		return nil, err
	}
	dir := place(at)
	a := &action{}
	for _, name := range c.Outputs {
		rel, err := r.output(dir, below(c.Dir, name))
		if err != nil {
			return nil, err
		}
		a.names = append(a.names, rel)
	}
	if err := r.top.seal(); err != nil {
		return nil, err
	}
	platform := o.platform()
	paths := slices.Clone(a.names)
	slices.Sort(paths)
	m := &repb.Command{
		Arguments: append([]string{argv0}, c.Args...), WorkingDirectory: dir, OutputPaths: slices.Compact(paths),
		Platform: platform, //nolint:staticcheck // servers of API versions before 2.2 look only there
	}
	env := slices.Clone(c.Env)
	slices.SortStableFunc(env, func(x, y string) int { return strings.Compare(variable(x), variable(y)) })
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		m.EnvironmentVariables = append(m.EnvironmentVariables, &repb.Command_EnvironmentVariable{Name: name, Value: value})
	}
	command, err := cas.TryEncode(m)
	if err != nil {
		return nil, job.Refuse(job.CauseTree, "a command that is not valid UTF-8 cannot be sent to the cluster")
	}
	whole := cas.Encode(&repb.Action{
		CommandDigest: command.Digest, InputRootDigest: r.top.sealed.Digest, Timeout: durationpb.New(c.Limit.Truncate(time.Second)), Platform: platform,
	})
	a.digest = whole.Digest
	a.blobs = append(slices.Clone(r.top.below), command, whole)
	return a, nil
}

func variable(v string) string {
	name, _, _ := strings.Cut(v, "=")
	return name
}

// platform returns the properties that workers have to have, sorted as the API demands.
func (o *Options) platform() *repb.Platform {
	p := &repb.Platform{}
	for _, name := range slices.Sorted(maps.Keys(o.Platform)) {
		p.Properties = append(p.Properties, &repb.Platform_Property{Name: name, Value: o.Platform[name]})
	}
	return p
}

// fill adds what the command finds, as a private tree has it.
func (r *root) fill(c *Command) error {
	for i := range c.Links {
		if err := nameable(c.Links[i].Name); err != nil {
			return err
		}
		if err := r.symlink(c.Links[i].Target, c.Links[i].Name); err != nil {
			return err
		}
	}
	if err := nameable(c.Dir); err != nil {
		return err
	}
	if err := r.mkdirs(c.Dir); err != nil {
		return err
	}
	for _, d := range c.Dirs {
		name := below(c.Dir, d)
		if err := nameable(path.Clean(name)); err != nil {
			return err
		}
		if err := r.mkdirs(name); err != nil {
			return err
		}
	}
	for i := range c.Files {
		f := &c.Files[i]
		name := below(c.Dir, f.Name)
		if err := nameable(path.Clean(name)); err != nil {
			return err
		}
		if f.Same != 0 {
			exec := f.Exec
			f = &c.Files[f.Same-1]
			f = &File{Content: f.Content, Sum: f.Sum, Exec: f.Exec || exec}
		}
		b := cas.Blob{Digest: cas.DigestFor(f.Sum, int64(len(f.Content))), Data: f.Content}
		if err := r.write(name, &content{Blob: b, exec: f.Exec}); err != nil {
			return err
		}
	}
	return nil
}

// compiler returns the name by which the command starts its compiler: the base name is the client's, in the directory where the
// compiler looks for its programs. If that is another one there, a link leads from it.
func (r *root) compiler(c *Command) (string, error) {
	exec := c.Compiler.Exec
	name := filepath.Join(filepath.Dir(exec), filepath.Base(c.Name))
	want := r.find(exec)
	if want == nil {
		return "", job.Refuse(job.CauseToolchain, "%s is not among the files of the toolchain", exec)
	}
	switch there := r.find(name); {
	case there == nil:
		if err := r.symlink(filepath.Base(exec), name); err != nil {
			return "", err
		}
	case there != want:
		return "", refused(name, "the toolchain has another program of that name")
	}
	return name, nil
}

// output makes the directory of an output, and returns its name as seen from dir, which is canonical and has no leading slash.
func (r *root) output(dir, name string) (string, error) {
	if err := nameable(path.Clean(name)); err != nil {
		return "", err
	}
	at, base, err := r.parent(name)
	if err != nil {
		return "", err
	}
	// Workers may show one file to many actions: what writes to an input could change it for all of them.
	if _, there := at[len(at)-1].d.nodes[base]; there {
		return "", refused(name, "an output is to be where something else is")
	}
	rel, err := filepath.Rel("/"+dir, "/"+path.Join(place(at), base))
	if err != nil {
		return "", refused(name, err.Error())
	}
	return rel, nil
}
