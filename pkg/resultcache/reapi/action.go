package reapi

import (
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/rdistcc/rdistcc/internal/cas"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// outputName is the name of the entry in an ActionResult.
const outputName = "result"

// action stands for a key.
type action struct {
	digest          *repb.Digest // of action
	action, command cas.Blob
}

// actionOf returns the action for a key. It must be the same in every version, or results are not found.
func actionOf(key resultcache.Key) action {
	command := cas.Encode(&repb.Command{Arguments: []string{"rdistcc", "result", key.String()}, OutputPaths: []string{outputName}})
	a := cas.Encode(&repb.Action{CommandDigest: command.Digest, InputRootDigest: cas.DigestOf(nil)})
	return action{a.Digest, a, command}
}

// present returns b as a list, which is empty if there is none.
func present(b *cas.Blob) []cas.Blob {
	if b == nil {
		return nil
	}
	return []cas.Blob{*b}
}
