package connmgr

import (
	"crypto/sha256"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// missedLeft is what the cache has to say of a compile that a link has left.
const missedLeft = "no result of the same part of a link is kept"

// compileLeft makes a host compile what a link with LTO leaves, unless the cache has what became of it. The names of the files are other
// ones in each link, and make no difference to the object.
func (c *client) compileLeft(t *attempt.Task) (*ipc.Result, *ipc.GoLocal) {
	meaning := meaningOfIR
	if t.Body.Language == unit.LanguageLTO {
		meaning = meaningOfPartition
	} else if t.Known != nil {
		t.Known.KeepSource() // other jobs of the link import from it
	}
	if c.m.results == nil || t.Known == nil || len(t.Known.Set.Files) != len(t.Body.Files) {
		return c.compile(t, true)
	}
	body, sum, ok := meaning(t.Body, t.Known.Set.Files)
	if !ok && t.Body.Language == unit.LanguageIR && listedWhole(t) { // names may matter
		return c.compileNamed(t, resultcache.ListKeyOf(c.compiler.ID, t.Body, t.Known.Set.Sum()), manner{tree: true, missed: missedLeft})
	} else if !ok {
		return c.compile(t, true)
	}
	return c.compileNamed(t, resultcache.LinkKeyOf(c.compiler.ID, body, sum), manner{tree: true, missed: missedLeft})
}

// meaningOfPartition returns the job of a compile of one of gcc's partitions without the name that lto-wrapper has made up for the link, and
// a sum over the partition. ok is false where there is no such name.
func meaningOfPartition(b *job.Body, files []*inputs.Input) (_ *job.Body, sum [sha256.Size]byte, ok bool) {
	if !onlyObject(b) || len(files) != 1 {
		return nil, sum, false
	}
	dir, base := path.Split(b.Outputs[0].Name)
	temporary, _, _ := strings.Cut(base, ".")
	if !strings.HasPrefix(temporary, "cc") || len(temporary) < len("ccXXXXXX") || !strings.HasPrefix(path.Base(files[0].Name), temporary+".") {
		return nil, sum, false
	}
	own := nameless(b)
	for i, w := range own.Args {
		own.Args[i] = strings.ReplaceAll(w, dir+temporary, "")
	}
	text, err := files[0].Append(nil)
	if err != nil {
		return nil, sum, false // it is noticed again, later
	}
	sum, ok = sumOfPartition(text, dir+temporary)
	return own, sum, ok
}

// onlyObject reports whether a job reads files alone, and makes an object alone.
func onlyObject(b *job.Body) bool {
	return len(b.Outputs) == 1 && b.Outputs[0].Kind == unit.OutputObject && len(b.Images) == 0 && len(b.Links) == 0
}

// nameless returns a copy of a job without the names of its files, but with those in its words.
func nameless(b *job.Body) *job.Body {
	own := *b
	own.Args, own.Files, own.Name = slices.Clone(b.Args), nil, ""
	own.Outputs = []unit.Output{{Kind: unit.OutputObject, Optional: b.Outputs[0].Optional}}
	return &own
}

// thinIndex begins the word that names the index.
const thinIndex = "-fthinlto-index="

// meaningOfIR returns the job of a compile of LLVM's IR without the names of its files, and a sum over these: the module, the index and the
// modules that the index names, which is all that it reads. ok is false where a name may matter: in another word, or of another output.
func meaningOfIR(b *job.Body, files []*inputs.Input) (_ *job.Body, sum [sha256.Size]byte, ok bool) {
	if !onlyObject(b) {
		return nil, sum, false
	}
	contents := make(map[string]*inputs.Input, len(files))
	at := func(name string) string {
		if !path.IsAbs(name) {
			name = b.Cwd + "/" + name
		}
		return path.Clean(name)
	}
	for i, f := range files {
		if b.Files[i].Same != 0 || contents[at(f.Name)] != nil {
			return nil, sum, false
		}
		contents[at(f.Name)] = f
	}
	// named returns the file that a word or an index names, which may be by way of a link, or nil.
	named := func(name string) *inputs.Input {
		if f := contents[at(name)]; f != nil {
			return f
		}
		real, _ := filepath.EvalSymlinks(at(name))
		return contents[real]
	}
	own := nameless(b)
	var module, index *inputs.Input
	for i, w := range own.Args {
		name, is := strings.CutPrefix(w, thinIndex)
		switch {
		case is && index == nil:
			index, own.Args[i] = named(name), thinIndex
		case i > 0 && own.Args[i-1] == "-o" && w == b.Outputs[0].Name:
			own.Args[i] = ""
		case strings.Contains(w, stem(b.Outputs[0].Name)) && named(w) == nil:
			return nil, sum, false
		case strings.HasPrefix(w, "-"):
		default:
			f := named(w)
			if f != nil && module != nil {
				return nil, sum, false
			}
			if f != nil {
				module, own.Args[i] = f, ""
			}
		}
	}
	if module == nil || index == nil || module == index {
		return nil, sum, false
	}
	text, err := index.Append(nil)
	if err != nil {
		return nil, sum, false // it is noticed again, later
	}
	read := map[*inputs.Input]bool{module: true, index: true}
	said, known := modules.Meaning(text, func(name string) ([sha256.Size]byte, bool) {
		in := named(name)
		if in == nil {
			return [sha256.Size]byte{}, false
		}
		read[in] = true
		return in.ID, true
	})
	h := sha256.New()
	h.Write(module.ID[:])
	h.Write(said[:])
	return own, [sha256.Size]byte(h.Sum(nil)), known && len(read) == len(contents)
}

// stem returns a file's name without directory and suffix.
func stem(name string) string {
	return strings.TrimSuffix(path.Base(name), path.Ext(name))
}
