package trust

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/outputs"
)

// ErrInode: a result contains the identity of a file, its device and inode number, which differ between hosts. It is no
// host's fault.
var ErrInode = fmt.Errorf("the inode of a source in it: %w", outputs.ErrDoubt)

// region begins the names that clang gives to OpenMP's target regions: __omp_offloading_DEVICE_INODE_function_l7. It does so
// without any target (-fopenmp-targets=) too. Optimization may leave nothing of them.
var region = []byte("__omp_offloading_")

// inode returns ErrInode if clang may have named something in the output b of the command by a file's inode.
func inode(body *job.Body, b []byte) error {
	if !targets(body.Args) {
		return nil
	}
	if bytes.Contains(b, region) || !isGCC(body.Compiler) && !bytes.HasPrefix(b, []byte("BC")) && outputs.Sealed(b) {
		return ErrInode
	}
	return nil
}

// targets reports whether a command may have target regions of OpenMP compiled.
func targets(args []string) bool {
	for _, w := range args {
		if strings.HasPrefix(w, "-fopenmp") && w != "-fopenmp-simd" || w == "--openmp" {
			return true
		}
	}
	return false
}

// isGCC reports whether a compiler's file is called like a gcc. gcc names regions without a file.
func isGCC(file string) bool {
	return strings.Contains(path.Base(file), "gcc") || strings.Contains(path.Base(file), "g++")
}
