// Package inputs knows what a compile reads without running the compiler.
//
// A Table is kept for as long as its process lives. It knows files (what they contain,
// as a digest, and which other files their text names), directories (which names are in
// them, and which are not) and units (one compile command and all that it may read):
//
//	Query ─▶ Resolve ─┬─▶ Set     every file that the compile can read, and the links and directories on the way
//	                  └─▶ *Doubt  the compiler has to be asked; Learn keeps its answer
//
// A Set is what is reached from the source along every directive that names a file, under
// whatever condition the directive stands: for each name the first file that the compiler's
// search would find. The claim is that a compile that sees the files of the Set, and nothing else
// of this machine but its toolchain, does the same as here. A file too many does no harm, as
// the compile searches by itself; one that is missing, or stale, would. After a Doubt the Set is what
// the compiler has listed; all else that was found says how long that holds.
//
// What the Table knows is believed only while it must be so. A file has the content
// that it had while device, inode, size, times of modification and of change are the same, and
// a directory has the names that it had; unless the time of change was so close to the look that a later
// change could bear the same one. Every Resolve looks at every file and directory that it uses.
// File systems whose times cannot be trusted are a Doubt.
package inputs
