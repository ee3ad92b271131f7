// Package inputs finds out what a compile reads without running the compiler.
//
// A Table lives as long as its process. It knows files (a digest of their content, and which
// other files their text names), directories (which names exist in them, and which do not)
// and units (one compile command and everything that it may read):
//
//	Query ─▶ Resolve ─┬─▶ Set     every file that the compile can read, and the links and directories on the way
//	                  └─▶ *Doubt  the compiler has to be asked; Learn keeps its answer
//
// A Set is what can be reached from the source along every directive that names a file, whatever
// condition the directive is under. For each name it has the first file that the compiler's search
// would find. The claim is that a compile that sees the files of the Set, and nothing else of this
// machine except its toolchain, does the same as here. A superfluous file does no harm, as the
// compile searches by itself; a missing or stale one would. After a Doubt the Set is what the compiler
// has listed; everything else that was found determines how long that remains valid.
//
// What the Table knows is believed only while it must be true. A file has its old content while
// device, inode, size, and times of modification and change are the same, and a directory has its
// old names likewise. The exception is a time of change so close to the check that a later change
// could have the same one. Every Resolve checks every file and directory that it uses, or relies on a
// check that began after it was called. The kernel tells what comes and goes in directories that are used
// again and again (watch.go). File systems whose times cannot be trusted cause a Doubt.
//
// What nothing has changed for is resolved side by side (quick.go); the rest takes turns.
package inputs
