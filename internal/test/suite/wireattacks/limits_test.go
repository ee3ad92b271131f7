package wireattacks

import "golang.org/x/sys/unix"

// descriptorsLeft is how many this process may have, as far as they are worth it here.
func descriptorsLeft() int {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return 1024
	}
	if !full() {
		return min(int(l.Max), 6000)
	}
	return int(min(l.Max, 40_000))
}
