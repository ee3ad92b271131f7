package connmgr

import (
	"os"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
)

// TestBuildThatIsNamed: the name of a build takes precedence over the process.
func TestBuildThatIsNamed(t *testing.T) {
	of := func(uid uint32, name string) uint64 {
		c := &client{m: new(Manager), uid: uid, pid: int32(os.Getpid()), lease: &ipc.Lease{Build: name}}
		return c.build()
	}
	if named := of(1, "a"); named != machine.NamedBuild(1, "a") || of(1, "") == named {
		t.Error("the build is not the one that was named")
	}
}
