// Package cluster has the jobs of a daemon done by a cluster that speaks the Remote Execution API, version 2, such as Buildbarn.
//
// A job becomes an action: its input root is what a private tree would show, the toolchain's files and the job's, under the names
// that they have on the build host. All of it is named by content. What the server does not hold is uploaded first, once, whichever
// jobs need it. The command, its environment and its working directory are those of a job in a private tree, so that the object is
// the one that the build host would have made.
//
// That takes workers that run actions with the input root as their root directory; an action at the first use of each toolchain
// proves it. What the API does not promise decides which jobs are refused (hazards.go): files have no times there, and files with
// the same content may be one file.
//
//	root.go       input roots
//	base.go       those of toolchains, by content
//	hazards.go    what a cluster cannot show
//	held.go       what the server holds, and uploads of the rest
//	action.go     from a Command to an action, and from its result to an Outcome
//	prove.go      that workers can run a toolchain
//	execute.go    one execution, with lost workers and blobs
//	abilities.go  what the server can do, and whether it can be reached
//	cluster.go    the Cluster
package cluster
