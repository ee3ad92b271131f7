//go:build !amd64

package inputs

import "golang.org/x/sys/unix"

const sysFstatat = unix.SYS_FSTATAT
