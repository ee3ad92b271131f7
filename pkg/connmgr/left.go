package connmgr

import (
	"crypto/sha256"
	"path"
	"slices"
	"strings"

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
	}
	if c.m.results == nil {
		return c.compile(t, true)
	}
	body, sum, ok := meaning(t.Body, t.Text[t.TextOff:])
	if !ok {
		return c.compile(t, true)
	}
	return c.compileNamed(t, resultcache.LinkKeyOf(c.compiler.ID, body, sum), manner{tree: true, missed: missedLeft})
}

// meaningOfPartition returns the job of a compile of one of gcc's partitions without the name that lto-wrapper has made up for the link, and
// a sum over the partition. ok is false where there is no such name.
func meaningOfPartition(b *job.Body, text []byte) (_ *job.Body, sum [sha256.Size]byte, ok bool) {
	if !onlyObject(b) || len(b.Files) != 1 || b.Files[0].Len != uint64(len(text)) {
		return nil, sum, false
	}
	dir, base := path.Split(b.Files[0].Name)
	temporary, _, _ := strings.Cut(base, ".")
	if !strings.HasPrefix(temporary, "cc") || len(temporary) < len("ccXXXXXX") || !strings.HasPrefix(b.Outputs[0].Name, dir+temporary+".") {
		return nil, sum, false
	}
	own := nameless(b)
	for i, w := range own.Args {
		own.Args[i] = strings.ReplaceAll(w, dir+temporary, "")
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
func meaningOfIR(b *job.Body, text []byte) (_ *job.Body, sum [sha256.Size]byte, ok bool) {
	if !onlyObject(b) {
		return nil, sum, false
	}
	contents := make(map[string][]byte, len(b.Files))
	for i := range b.Files {
		f := &b.Files[i]
		if f.Same != 0 || f.Len > uint64(len(text)) {
			return nil, sum, false
		}
		contents[path.Clean(f.Name)], text = text[:f.Len], text[f.Len:]
	}
	own := nameless(b)
	var module, index string
	for i, w := range own.Args {
		name, is := strings.CutPrefix(w, thinIndex)
		switch _, file := contents[path.Clean(w)]; {
		case is && index == "":
			index, own.Args[i] = path.Clean(name), thinIndex
		case i > 0 && own.Args[i-1] == "-o" && w == b.Outputs[0].Name:
			own.Args[i] = ""
		case file && module == "":
			module, own.Args[i] = path.Clean(w), ""
		case file || strings.Contains(w, stem(b.Outputs[0].Name)):
			return nil, sum, false
		}
	}
	if module == "" || index == "" || module == index || contents[index] == nil {
		return nil, sum, false
	}
	read := map[string]bool{module: true, index: true}
	said, known := modules.Meaning(contents[index], func(name string) ([sha256.Size]byte, bool) {
		name = path.Clean(name)
		read[name] = true
		in, there := contents[name]
		return sha256.Sum256(in), there
	})
	h := sha256.New()
	of := sha256.Sum256(contents[module])
	h.Write(of[:])
	h.Write(said[:])
	return own, [sha256.Size]byte(h.Sum(nil)), known && len(read) == len(contents)
}

// stem returns a file's name without directory and suffix.
func stem(name string) string {
	return strings.TrimSuffix(path.Base(name), path.Ext(name))
}
