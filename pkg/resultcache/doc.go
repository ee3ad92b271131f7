// Package resultcache names the results of compiles and puts them into a form in which they can be kept.
//
//	Key     names a result by everything that it depends on: toolchain, command, inputs
//	Entry   is a result with its outputs, messages and origin; it verifies itself
//	Store   keeps entries: package disk on this machine, others elsewhere
//
// A compile on a host sees its toolchain, its command and the files that its job names, and nothing else
// (package privatetree). So its result is a function of these three, and two jobs that agree in them have
// the same result. That the files which a job names are those that the local compiler would read is what
// package inputs is for; whatever is absent there counts through that, because a file that appeared would be
// part of the inputs and give another Key.
//
// A reader trusts no store. It checks that an entry is complete and unchanged, and that it is the answer to
// its own question.
package resultcache
