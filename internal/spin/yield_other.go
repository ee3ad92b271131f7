//go:build !linux

package spin

import "runtime"

func letOthersRun() { runtime.Gosched() }
