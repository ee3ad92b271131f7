// Package modules reads what says which C++ modules a compile reads and writes: the directives of a source,
// files that map names of modules to files, and compiled modules (gcc's .gcm, clang's .pcm). It looks at texts
// and contents; the caller reads the files.
//
// It also finds which files of LLVM's bitcode an index of ThinLTO names.
//
// What it finds need not be exact. If a compile lacks a compiled module, it fails, and the command is run again on
// the machine that has all of them. If it writes another file than was expected, the same happens. Only where a
// missing file would go unnoticed, which is when gcc looks whether a header that is included has been compiled,
// all files are found that there can be.
package modules
