package compile

import "strings"

// preprocessorWords judges -Wp,A,B and the argument of -Xpreprocessor: words
// that the driver hands to the preprocessor unseen. Only those whose whole
// effect is in the text, or in a dependency file, are known.
func (p *parser) preprocessorWords(list string) {
	words := strings.Split(list, ",")
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case strings.HasPrefix(w, "-D") && len(w) > 2, strings.HasPrefix(w, "-U") && len(w) > 2, strings.HasPrefix(w, "-I") && len(w) > 2:
		case w == "-MD", w == "-MMD":
			// The file name is the next word. clang's driver reads this form itself.
			if i++; i == len(words) {
				p.refuse(ReasonUnknownOption + "-Wp")
				return
			}
			p.dependencyFile(words[i])
			if p.Driver.Family == Clang {
				p.deps, p.depFile = true, true
			}
		case w == "-MF", w == "-MT", w == "-MQ":
			if i++; i == len(words) {
				p.refuse(ReasonUnknownOption + "-Wp")
				return
			}
			if w == "-MF" {
				p.dependencyFile(words[i])
			}
		case w == "-MP":
		default:
			p.refuse(ReasonUnknownOption + "-Wp," + optionName(w))
		}
	}
}

// assemblerWords judges -Wa,A,B.
func (p *parser) assemblerWords(list string) {
	for {
		w, rest, more := strings.Cut(list, ",")
		p.assemblerWord(w)
		if !more {
			return
		}
		list = rest
	}
}

// assemblerWord knows the assembler's options that name no file, list nothing
// and do not describe the assembly text, whose name is a temporary file's.
func (p *parser) assemblerWord(w string) {
	name := w
	if i := strings.IndexByte(w, '='); i >= 0 {
		name = w[:i+1]
	}
	switch name {
	case "--noexecstack", "--execstack", "--32", "--64", "--x32", "--fatal-warnings", "--warn", "--no-warn", "-W",
		"-mrelax-relocations=", "-march=", "-mtune=", "-mcpu=", "-mfpu=", "-mfloat-abi=", "-mabi=", "-meabi=",
		"-mbranches-within-32B-boundaries", "-malign-branch-boundary=", "-malign-branch=", "-malign-branch-prefix-size=",
		"-mlfence-after-load=", "-mlfence-before-indirect-branch=", "-mlfence-before-ret=", "-mx86-used-note=",
		"-mshared", "-momit-lock-prefix=", "-mthumb", "-mthumb-interwork", "-mimplicit-it=", "-mnaked-reg", "-msse2avx",
		"-mmnemonic=", "-msyntax=", "-mindex-reg", "-mno-relax", "-mrelax", "-mlittle-endian", "-mbig-endian",
		"-mfence-as-lock-add=", "-moperand-check=", "-msse-check=", "-mavxscalar=", "-mevexlig=", "-mevexwig=", "-mevexrcig=",
		"-gz=", "--divide", "--compress-debug-sections", "--compress-debug-sections=", "--nocompress-debug-sections",
		"-mno-warn-deprecated", "-mwarn-deprecated", "--size-check=", "--elf-stt-common=", "--generate-missing-build-notes=",
		"--reduce-memory-overheads", "--strip-local-absolute", "-no-pad-sections", "--no-pad-sections":
		if strings.HasSuffix(w, "=native") {
			p.refuse(ReasonNotReproducible + "native")
		}
	default:
		p.refuse(ReasonUnknownOption + "-Wa," + optionName(w))
	}
}

// forwarded knows the words behind -Xclang that change nothing but code or warnings.
func forwarded(w string) bool {
	switch w {
	case "-disable-O0-optnone", "-disable-llvm-passes", "-disable-llvm-optzns", "-disable-lifetime-markers",
		"-disable-free", "-discard-value-names", "-no-opaque-pointers", "-opaque-pointers",
		"-enable-noundef-analysis", "-no-enable-noundef-analysis", "-fno-validate-pch", "-fdenormal-fp-math=ieee",
		"-menable-no-infs", "-menable-no-nans", "-munwind-tables", "-mconstructor-aliases", "-target-feature",
		"-fuse-ctor-homing", "-fnative-half-type", "-fallow-half-arguments-and-returns", "-Wno-everything":
		return true
	}
	return len(w) > 2 && (w[0] == '+' || strings.HasPrefix(w, "-W"))
}
