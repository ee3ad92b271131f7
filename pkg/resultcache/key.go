package resultcache

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/internal/wire"
)

// Key names the result of a compile. Equal keys mean equal results.
type Key [sha256.Size]byte

// String returns k in hexadecimal.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// ParseKey reads what String returns. ok is false if s is something else.
func ParseKey(s string) (k Key, ok bool) {
	n, err := hex.Decode(k[:], []byte(s[:min(len(s), 2*len(k))]))
	return k, err == nil && n == len(k) && len(s) == 2*n
}

// keyVersion is the first thing that a Key depends on. It changes when a compile of the same job can have
// another result, or when keys are made in another way.
const keyVersion = "rdistcc result 2"

// KeyOf returns the Key of a job for a toolchain. inputs is the sum over all files, directories and links that
// the job shows (Inputs.Sum); those of b are not looked at.
func KeyOf(tc unit.ToolchainID, b *job.Body, inputs [sha256.Size]byte) Key {
	return keyOf(keyVersion, tc, b, inputs)
}

// textVersion is keyVersion for jobs of the text form.
const textVersion = "rdistcc result of text 1"

// TextKeyOf returns the Key of a job of the text form, whose only input is text.
func TextKeyOf(tc unit.ToolchainID, b *job.Body, text []byte) Key {
	return keyOf(textVersion, tc, b, sha256.Sum256(text))
}

// listVersion is keyVersion for jobs whose files a compiler has listed.
const listVersion = "rdistcc result of a list 1"

// ListKeyOf returns the Key of a job whose files a compiler on the build host has listed: it shows these, and not what its compile
// might read besides. inputs is as for KeyOf.
func ListKeyOf(tc unit.ToolchainID, b *job.Body, inputs [sha256.Size]byte) Key {
	return keyOf(listVersion, tc, b, inputs)
}

// linkVersion is keyVersion for compiles that links leave.
const linkVersion = "rdistcc result of a link's 1"

// LinkKeyOf returns the Key of a compile that a link has left, whose files have names that say nothing: those in b are the caller's own.
func LinkKeyOf(tc unit.ToolchainID, b *job.Body, inputs [sha256.Size]byte) Key {
	return keyOf(linkVersion, tc, b, inputs)
}

func keyOf(version string, tc unit.ToolchainID, b *job.Body, inputs [sha256.Size]byte) Key {
	// The order of variables depends on how a build was started, and only of equal names the first one counts.
	env := slices.Clone(b.Env)
	slices.SortStableFunc(env, func(x, y string) int { return strings.Compare(varName(x), varName(y)) })

	k := make([]byte, 0, 4096)
	k = wire.AppendString(k, version)
	k = append(k, tc[:]...)
	k = append(k, inputs[:]...)
	k = wire.AppendString(k, b.Argv0)
	k = wire.AppendString(k, b.Compiler)
	k = wire.AppendStrings(k, b.Args)
	k = wire.AppendUint32(k, b.Front)
	k = wire.AppendString(k, b.Language)
	k = wire.AppendString(k, b.Name)
	k = wire.AppendString(k, b.Cwd)
	k = wire.AppendStrings(k, env)
	k = wire.AppendUint32(k, uint32(len(b.Outputs)))
	for i := range b.Outputs {
		o := &b.Outputs[i]
		k = wire.AppendBool(append(k, byte(o.Kind)), o.Optional)
		k = wire.AppendString(k, o.Name)
	}
	return sha256.Sum256(k)
}

func varName(kv string) string {
	name, _, _ := strings.Cut(kv, "=")
	return name
}
