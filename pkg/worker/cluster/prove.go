package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/toolchain"
)

// proofDir is where the proof has its source: a directory that no worker has by itself.
const proofDir = "/rdistcc-proof"

// proofTime bounds the compile of the proof.
const proofTime = 2 * time.Minute

// prove has a small source compiled, as a job would: whether workers show the input root as their root directory, and can run the
// toolchain, is said nowhere. The object has to have the name of the directory that the compiler was in.
func (c *Cluster) prove(ctx context.Context, tc *toolchain.Toolchain, base *directory) error {
	source, object := "proof.c", "proof.o"
	args := []string{"-g", "-c", proofDir + "/" + source, "-o", object}
	text := []byte("int rdistcc_proof(int x) { return x + 1; }\n")
	if tc.Family == toolchain.Tidy {
		object, args = "", []string{proofDir + "/" + source, "--checks=-*,misc-definitions-in-headers", "--"}
	}
	cmd := &Command{
		Compiler: tc, Name: tc.Exec, Args: args, Env: []string{"LC_ALL=C", "PATH=/usr/bin:/bin", "TMPDIR=/tmp"}, Dir: proofDir,
		Files: []File{{Name: proofDir + "/" + source, Content: text, Sum: sha256.Sum256(text)}}, Limit: proofTime, MaxFile: 1 << 20, MaxPrinted: 4 << 10,
	}
	if object != "" {
		cmd.Outputs = []string{object}
	}
	o, err := c.runOn(ctx, cmd, base)
	if err != nil {
		return err
	}
	why := ""
	switch {
	case o.Exit != 0:
		why = fmt.Sprintf("exit status %d %s", o.Exit, firstLine(o.Printed[1]))
	case object != "" && (o.Outputs[0] == nil || !bytes.Contains(o.Outputs[0].Content, []byte(proofDir))):
		why = "the object does not name its directory"
	}
	if why == "" {
		c.o.Log.Info("the cluster can run a toolchain", "toolchain", tc.Name(), "exec", tc.Exec)
		return nil
	}
	err = job.Refuse(job.CauseTree, "the cluster's workers cannot compile with %s (%s): they have to show the input root as / (docs/kubernetes.md, Workers), and be of its processor", tc.Exec, why)
	c.o.Log.Error("a toolchain is of no use on the cluster", "err", err)
	return err
}

// firstLine returns the first line of b, of ordinary length.
func firstLine(b []byte) string {
	line, _, _ := strings.Cut(string(bytes.TrimSpace(b)), "\n")
	return strings.ToValidUTF8(line[:min(len(line), 200)], "?")
}
