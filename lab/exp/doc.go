// Package exp is the frame of the experiments that `rdistcc-perf exp` runs: questions which the papers
// that the project builds on have asked, put to this machine.
//
// An Experiment has axes with named levels. Each combination is a Cell, and a cell is measured once in
// every round, in an order that is shuffled anew for each round: what else the machine does meanwhile
// hits all cells alike. Every measurement is a Sample, kept raw as a line of JSON. Results condenses
// samples to medians with a 95 % interval, and Predicates judge them: claims of shape, such as who wins
// where and where lines cross, that hold, fail, or cannot be told on this machine.
//
// To add one, write a variable of type *Experiment in a package below this one, next to those with the
// same subject, list it in package all, and add a section to lab/experiments.md:
//
//	## E99, short name
//	...text by hand: what the paper claims, what agreed, what did not, why...
//	<!-- written by make exp: E99: begin -->
//	<!-- written by make exp: E99: end -->
//
// A test says which of these is missing.
package exp
