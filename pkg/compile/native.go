package compile

import (
	"runtime"
	"strings"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// x86 reports whether -mcpu is another word for -mtune, or means nothing.
const x86 = runtime.GOARCH == "amd64" || runtime.GOARCH == "386"

// Machine returns the command's -m words, in order, if one of them is "native" and so means
// this machine's processor; else nil. Native must then tell the plan what that processor
// is, before the plan's words are used for another machine.
func (p *Plan) Machine() []string {
	if !p.native {
		return nil
	}
	var words []string
	for _, o := range p.options {
		if len(o.words) == 1 && strings.HasPrefix(o.words[0], "-m") {
			words = append(words, o.words[0])
		}
	}
	return words
}

// recorded reports whether the object records its command line.
func (p *Plan) recorded() bool {
	for _, o := range p.options {
		if o.class == textCommandLine {
			return true
		}
	}
	return false
}

// logged reports whether a side file has the command's words.
func (p *Plan) logged() bool {
	for _, o := range p.options {
		if o.class == commandLog {
			return true
		}
	}
	return false
}

// Native replaces the words that end in "=native" by words, which come before all others.
// order says that the compiler proper then gets its options in another order. If that shows,
// the result depends on sources, whether the job is in the sources form: if it is, front is the
// number of words that the host must put right after the source, which takes running without
// the driver. Otherwise, or if there are no words, why is the reason to compile here.
func (p *Plan) Native(words []string, order, sources bool) (front int, why string) {
	if !p.native {
		return 0, ""
	}
	if len(words) == 0 {
		return 0, reason.Native
	}
	if p.logged() {
		return 0, reason.Native // the file has all words
	}
	if order && !p.Syntax && !p.Expand && !p.assembles() && (p.recorded() || p.Driver.Family == GCC && (p.debug || p.lto)) {
		if _, _, ok := p.SharedWhole(); !ok || !sources || p.driverNeeded() {
			return 0, reason.Native
		}
		front = len(words)
	}
	isNative := func(o option) bool { return o.class == arch && strings.HasSuffix(o.words[0], "=native") }
	argv := append([]string(nil), words...)
	for _, w := range p.argv {
		if !strings.HasPrefix(w, "-m") || !strings.HasSuffix(w, "=native") {
			argv = append(argv, w)
		}
	}
	options := []option{{words: words, class: arch}}
	for _, o := range p.options {
		if !isNative(o) {
			options = append(options, o)
		}
	}
	p.argv, p.options, p.native = argv, options, false
	return front, ""
}

// driverNeeded reports whether the driver does more than start one program after the other.
func (p *Plan) driverNeeded() bool {
	for _, o := range p.options {
		if o.class == saveTemps || o.words[0] == "-pipe" {
			return true
		}
	}
	return false
}
