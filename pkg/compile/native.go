package compile

import (
	"runtime"
	"strings"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// x86 is where -mcpu is another word for -mtune, or none.
const x86 = runtime.GOARCH == "amd64" || runtime.GOARCH == "386"

// Machine has the command's words -m..., in order, if one of them means the
// processor of this machine by "native"; else it is nil. Then Native tells the
// plan what that is, before its words are used for another machine.
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

// recorded reports whether the object tells the words that made it.
func (p *Plan) recorded() bool {
	for _, o := range p.options {
		if o.class == textCommandLine {
			return true
		}
	}
	return false
}

// Native puts words in the place of those that end in "=native", before all
// others. order says that the compiler proper gets its options in another order
// then. Where that shows, sources tells whether the job is in that form: then front is
// how many words it must get right behind the source, for which its host has to do
// without the driver. Else, or where there are no words, why is the reason to compile here.
func (p *Plan) Native(words []string, order, sources bool) (front int, why string) {
	if !p.native {
		return 0, ""
	}
	if len(words) == 0 {
		return 0, reason.Native
	}
	if order && (p.recorded() || p.Driver.Family == GCC && (p.debug || p.lto)) {
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

// driverNeeded reports whether the driver has more to do than to start one program
// after the other.
func (p *Plan) driverNeeded() bool {
	for _, o := range p.options {
		if o.class == saveTemps || o.words[0] == "-pipe" {
			return true
		}
	}
	return false
}
