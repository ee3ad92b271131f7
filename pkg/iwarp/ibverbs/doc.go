// Package ibverbs is the provider for RDMA adapters and for the kernel's software
// iWARP (siw): the verbs of package iwarp over libibverbs and librdmacm.
//
// It is built with cgo and the build tag ibverbs, against libibverbs-dev and
// librdmacm-dev; without them [Open] says so. A program then speaks iWARP through
// the device. Its peers may have such a device, or use the software stack.
//
// # What is different from the software device
//
// Much is decided below: the driver or the adapter chooses revision, CRC, markers
// and segment size, and does not report them. DeviceAttr says what is lacking:
//
//   - AnyBase: TOs are virtual addresses. MROptions.Base is refused, MR.Base is the
//     address, and a peer that knows a region's STag learns where it lies;
//   - BoundMR: a region is open to all QPs of its PD, and the device chooses STags:
//     give each peer a PD of its own;
//   - StartUp: ConnParam.Rev 1, RTR, Markers, MaxULPDU, Extensions and SendFirst are an
//     ErrUnsupported; ClientServer, CRC and Fallback are ignored, and ConnInfo has
//     none of it. ORD and IRD are cut down to what device and peer can do;
//   - WCMarks: a completion does not name the STag that the peer has invalidated;
//   - ReadRight: siw lets a peer read whatever an STag of the PD names;
//   - SolicitedOnly: siw notifies of every completion;
//   - EndReason: an end by Terminate is reported without its codes, if at all;
//   - PinsMR: registering memory pins it, so it takes longer the more there is;
//   - Guard, Source, ReadStats: the device answers Reads by itself, unseen.
//
// Shared receive queues, memory windows, fast registration, local invalidation,
// atomics and Immediate Data are not offered, whatever the device has.
//
// Some things are done here because the device does not do them: limits of the
// queues; the order of completions (siw's differs where a Read is under way, and at the
// end of a stream); Inline data beyond the device's maximum (copied into registered
// memory); completions of Unsignaled requests (made, and hidden); local use of a region
// after it was invalidated (by a second registration, made at the first such use).
// Statistics count messages; the number of FPDUs is the smallest possible.
//
// The siw driver does not wait for the segment that it is processing when a region ends:
// bytes may be placed, or read for an answer, some microseconds after Invalidate or
// Dereg have returned. A peer's own Send with Invalidate is exact.
//
// Registering pins memory, all of the region at once: RLIMIT_MEMLOCK bounds it for
// processes without CAP_IPC_LOCK.
//
// Dial waits ConnParam.Settle before it returns, 20 ms where it is 0: the siw driver
// as acceptor may miss what immediately follows its reply.
package ibverbs

import "github.com/rdistcc/rdistcc/pkg/iwarp"

// Open has one form with the provider and without it. `make test` compiles this package both ways, and its importers without.
var _ func(Config) (iwarp.Device, error) = Open

// Config configures a device.
type Config struct {
	// Device is its name, as ibv_devices lists it ("siw0"). Empty = the only iWARP
	// device of the machine, or the one that has an address of At.
	Device string
	// At lists the addresses (HOST:PORT) to be listened on. Where Device is empty they select one of
	// several devices; loopback and wildcard addresses select none.
	At []string
}
