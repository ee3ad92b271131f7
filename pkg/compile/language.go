package compile

import (
	"strings"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// Languages that a source can have here, by the names that -x takes.
const (
	langC        = "c"
	langCXX      = "c++"
	langObjC     = "objective-c"
	langObjCXX   = "objective-c++"
	langCpp      = "cpp-output"
	langCXXCpp   = "c++-cpp-output"
	langObjCpp   = "objective-c-cpp-output"
	langObjXXCpp = "objective-c++-cpp-output"
	langAsm      = "assembler"
	langAsmCpp   = "assembler-with-cpp"
	langIR       = unit.LanguageIR  // clang: LLVM's, as bitcode or as text
	langLTO      = unit.LanguageLTO // gcc: an object with one partition of a link
	langModule   = "c++-module"     // clang: makes a compiled module
	langCompiled = "c++-pcm"        // clang: a compiled module, from which an object is made
	langHeader   = "header"         // any header language: makes a precompiled header
	langOther    = "other"          // compiled, but not by the compilers handled here
	langLink     = ""               // given to the linker
)

// bySuffix returns the language that both families derive from a file's name.
func bySuffix(name string, d Driver) string {
	file := base(name)
	dot := strings.LastIndexByte(file, '.')
	if dot < 0 || d.Family == GCC && dot == 0 && file == name {
		return langLink // to gcc a name that is all suffix has no suffix
	}
	switch file[dot+1:] {
	case "c":
		if d.CXX {
			return langCXX
		}
		return langC
	case "cc", "cp", "cxx", "cpp", "CPP", "c++", "C":
		return langCXX
	case "i":
		if d.CXX {
			return langCXXCpp
		}
		return langCpp
	case "ii":
		return langCXXCpp
	case "m":
		return langObjC
	case "mm", "M":
		return langObjCXX
	case "mi":
		return langObjCpp
	case "mii":
		return langObjXXCpp
	case "s":
		return langAsm
	case "S":
		return langAsmCpp
	case "sx":
		if d.Family == GCC {
			return langAsmCpp
		}
	case "h", "hh", "H", "hp", "hxx", "hpp", "HPP", "h++", "tcc":
		return langHeader
	case "cppm", "ccm", "cxxm", "c++m":
		if d.Family == Clang {
			return langModule
		}
		return langOther
	case "pcm":
		if d.Family == Clang {
			return langCompiled
		}
		return langOther
	case "bc", "ll":
		if d.Family == Clang {
			return langIR
		}
		return langOther
	case "ixx", "cu", "cui", "cl", "clcpp", "hip",
		"f", "for", "ftn", "F", "f90", "f95", "f03", "f08", "F90", "F95", "go", "d", "dd", "di", "adb", "ads", "rs", "ast", "gch":
		return langOther
	}
	return langLink
}

// byName returns the language that -x names.
func byName(x string) string {
	switch x {
	case langC, langCXX, langObjC, langObjCXX, langCpp, langCXXCpp, langObjCpp, langObjXXCpp, langAsm, langAsmCpp, langModule, langIR, langLTO:
		return x
	case "c-header", "c++-header", "objective-c-header", "objective-c++-header", "c++-user-header", "c++-system-header", "c++-header-unit-header":
		return langHeader
	}
	return langOther
}

// ofHeader returns the language of the text of a header that -x, or else its suffix, makes one; "" if its image is not
// one that hosts make.
func ofHeader(x, name string, d Driver) string {
	switch {
	case x == "c-header":
		return langC
	case x == "c++-header":
		return langCXX
	case x != "":
		return ""
	case d.CXX || !strings.HasSuffix(name, ".h"):
		return langCXX
	}
	return langC
}

// preprocessed returns the language of lang's text after preprocessing. It is lang itself if
// that text is preprocessed already.
func preprocessed(lang string) string {
	switch lang {
	case langC:
		return langCpp
	case langCXX:
		return langCXXCpp
	case langObjC:
		return langObjCpp
	case langObjCXX:
		return langObjXXCpp
	}
	return lang
}

// raw reports whether lang is the language of preprocessed text.
func raw(lang string) bool {
	return strings.HasSuffix(lang, "cpp-output")
}
