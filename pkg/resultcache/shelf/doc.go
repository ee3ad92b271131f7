// Package shelf lays out memory, or a file, in which a host keeps results, for others to read without its help.
//
// A host adds entries (resultcache.Entry), and peers read the same memory by RDMA Read. The host is not
// asked, and does not know who reads what. So the oldest entries make room for new ones.
//
//	0      80                        4096    8192                        data
//	| head | marks, 24 bytes each ... | spare | records, 24 bytes each ... | entries, each at a multiple of 64 bytes ... |
//
// The entries are a log that goes round. For each of them there is a record, and the records go round as
// well: record n is in place n modulo the number of places. The head says which records count. A record
// never changes as long as it counts, and neither does its entry.
//
// A reader keeps an Index of the records. It reads the head now and then, and only the records that are new.
// So it knows, without asking anybody, which entries there are, and needs one Read for each of them. Behind
// that, it reads the head again: if the entry's record still counts, the entry did not change meanwhile
// (Index.Counts). RDMA Reads of a connection are answered in order (RFC 5040 §5.5).
//
// Marks say which results will be there soon, because their jobs are under way. They are a table, not a log, and
// take no place of an entry's. The head says how many there are and whether they are all for one manager, so a
// reader that is alone need not read them.
//
//	Shelf   is the memory, for the host that writes it
//	Head    says what is in it
//	Index   is what a reader knows of it
//
// A shelf may be in a file in place of memory, which is opened again after a restart (Create, Open, Verify).
//
// Several can share a Shelf without pushing each other's entries out (PutFor).
//
// The package does no I/O of its own. Sums of heads and records guard against chance, not against the host. What an
// entry is worth, its reader finds out by resultcache.Decode.
package shelf
