// Package az sends from an application's memory without a copy, and lets the application go on at once: Write returns before the
// data has left, and what the application changes meanwhile does not reach the wire. It is the asynchronous zero-copy that Balaji,
// Bhagvat, Jin and Panda built for SDP (AZ-SDP, IPDPS 2006), beside the policies Buffered and ZeroCopy of package stream.
//
// It is an experiment, and no policy of package stream. lab/experiments.md has the verdict (E7, E8, E9 and E10): against copying it
// takes a seventh less of the sender's processor from 1 MiB on, and Write returns at once; against ZeroCopy it gains nothing
// more on the software device, where a send has left once TCP has it.
//
// # How
//
// An Arena is a file in memory with two views. The library sends from the shared one, which is registered once. The
// application has the other one, which is shared as well until a Write: that maps it anew as private, in one system
// call. From then on the kernel gives the application a page of its own when it writes to one. The next call
// for the buffer waits until the data has left, copies the pages that the application has changed to the shared view, and maps its view
// as shared again. There is no signal handler and no page fault that Go code has to handle: a handler in the same process can
// stop the program for ever, as the garbage collector waits for the goroutine that faults, and that one for the handler.
//
// A buffer is mapped as a whole, and belongs to one Arena's user at a time. So data at any place in it can be sent, and no page
// is shared with something else: nothing needs to be copied at the ends.
//
// # When
//
// To map twice costs as much as to copy some hundred KiB, and with pages of 4 KiB more than to copy any size.
// An Arena therefore has pages of 2 MiB where it can get them, and measures both costs when it is made. A Conn copies what
// is too short. It copies everything for a while if the application changes so many pages that are under way that
// the kernel's copies cost more.
//
// # Contract
//
// A buffer must not be changed by another goroutine during Write, Reclaim, Flush or Close, as for any Write. Whoever fills a
// buffer again calls Reclaim before, or else each page that it writes to is copied by the kernel.
package az
