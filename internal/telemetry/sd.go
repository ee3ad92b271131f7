package telemetry

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Notifier tells systemd the program's state (sd_notify(3)). The zero value does nothing.
type Notifier struct{ socket string }

// NewNotifier uses the address in NOTIFY_SOCKET, which may be empty.
func NewNotifier(notifySocket string) Notifier { return Notifier{notifySocket} }

// Ready says that start-up, or a reload, is complete. status is a line for `systemctl status`.
func (n Notifier) Ready(status string) error {
	return n.send("READY=1\nSTATUS=" + oneLine(status))
}

// Stopping says that the program drains or ends.
func (n Notifier) Stopping(status string) error {
	return n.send("STOPPING=1\nSTATUS=" + oneLine(status))
}

// Reloading says that settings are being read again; Ready must follow. With Type=notify-reload systemd
// requires the monotonic time with it.
func (n Notifier) Reloading() error {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	return n.send(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", ts.Nano()/1000))
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " ") }

func (n Notifier) send(state string) error {
	if n.socket == "" {
		return nil
	}
	// A leading '@' marks an abstract address, which package net writes the same way.
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	return nil
}

// Socket is a socket that systemd opened for the program.
type Socket struct {
	Name string // FileDescriptorName= of the unit
	File *os.File
}

// maxSockets bounds LISTEN_FDS: units have a handful.
const maxSockets = 64

// Sockets returns the sockets that systemd passed on (sd_listen_fds(3)), or none if the variables are unset
// or meant for another process. The descriptors, from 3 on, belong to the caller, which also has to unset
// LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES before it starts a child.
func Sockets(getenv func(string) string, pid int) ([]Socket, error) {
	if p, err := strconv.Atoi(getenv("LISTEN_PID")); err != nil || p != pid {
		return nil, nil
	}
	n, err := strconv.Atoi(getenv("LISTEN_FDS"))
	if err != nil || n < 0 || n > maxSockets {
		return nil, fmt.Errorf("LISTEN_FDS is %q, want 0 to %d", getenv("LISTEN_FDS"), maxSockets)
	}
	names := strings.Split(getenv("LISTEN_FDNAMES"), ":")
	var out []Socket
	for i := range n {
		const first = 3 // SD_LISTEN_FDS_START
		fd := first + i
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return nil, fmt.Errorf("descriptor %d of LISTEN_FDS: %w", fd, err)
		}
		name := "unknown"
		if i < len(names) && names[i] != "" {
			name = names[i]
		}
		out = append(out, Socket{Name: name, File: os.NewFile(uintptr(fd), name)})
	}
	return out, nil
}
