package netlab

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const (
	mtu        = 1500
	queuedTUN  = 10000 // packets that the interface keeps for the switch
	vnetHeader = 10    // struct virtio_net_hdr before each packet
)

// open makes the host's namespace with its interfaces.
func (h *Host) open() error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		result <- h.openHere()
	}()
	err := <-result
	if err != nil {
		h.close()
	}
	return err
}

// openHere does that on a thread that is not used afterwards.
func (h *Host) openHere() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	var err error
	if h.ns, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())); err != nil {
		return err
	}
	if err := setFlags("lo", unix.IFF_UP, true); err != nil {
		return err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open /dev/net/tun: %w", err)
	}
	h.port.fd = fd
	ifr, err := unix.NewIfreq("net0")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return fmt.Errorf("make an interface: %w", err)
	}
	if err := h.port.offload(true); err != nil {
		return err
	}
	return h.configure()
}

// configure sets net0's address and brings it up.
func (h *Host) configure() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	mask := [4]byte{255, 255, 255, 0} // mask of Net
	for _, step := range []struct {
		what    string
		request uint
		set     func(*unix.Ifreq) error
	}{
		{"address", unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(h.Addr.AsSlice()) }},
		{"mask", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(mask[:]) }},
		{"MTU", unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(mtu); return nil }},
		{"queue", unix.SIOCSIFTXQLEN, func(r *unix.Ifreq) error { r.SetUint32(queuedTUN); return nil }},
	} {
		ifr, err := unix.NewIfreq("net0")
		if err == nil {
			err = step.set(ifr)
		}
		if err == nil {
			err = unix.IoctlIfreq(s, step.request, ifr)
		}
		if err != nil {
			return fmt.Errorf("%s of net0: %w", step.what, err)
		}
	}
	return setFlags("net0", unix.IFF_UP|unix.IFF_RUNNING, true)
}

// setFlags sets or clears flags of an interface of the calling thread's network.
func setFlags(name string, flags uint16, on bool) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, ifr); err != nil {
		return fmt.Errorf("flags of %s: %w", name, err)
	}
	if on {
		ifr.SetUint16(ifr.Uint16() | flags)
	} else {
		ifr.SetUint16(ifr.Uint16() &^ flags)
	}
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("flags of %s: %w", name, err)
	}
	return nil
}

// offload permits or forbids the host to hand over segments that stand for many packets.
func (p *port) offload(on bool) error {
	const checksum, tso4 = 1, 2 // TUN_F_CSUM, TUN_F_TSO4
	features := 0
	if on {
		features = checksum | tso4
	}
	if err := unix.IoctlSetInt(p.fd, unix.TUNSETOFFLOAD, features); err != nil {
		return fmt.Errorf("segments of net0: %w", err)
	}
	return nil
}

func (h *Host) close() {
	h.port.close()
	if h.ns != nil {
		h.ns.Close()
	}
}

// read reads one packet that the host has sent, with its header; 0 at the end.
func (p *port) read(b []byte) int {
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}, {Fd: int32(p.end), Events: unix.POLLIN}}
	for !p.ended.Load() {
		n, err := unix.Read(p.fd, b)
		if err == nil && n > 0 {
			return n
		}
		// Also while the interface is down: then a read is an error, and poll waits.
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return 0
		}
	}
	return 0
}
