// Package compare runs the same work under every way of coordinating it and under every fault, and counts what each way
// costs and loses. It is the command `fencepost compare`.
//
// A run is a plan of cells. A cell is one mode, one workload and one fault. It has a database of its own, Redis servers
// that nothing else uses meanwhile, and worker processes whose connections all pass through relays of its own. First
// the workers work undisturbed. Then the fault strikes one of them at a point that the worker has announced. The
// workers continue, and then they are stopped. At last the audit counts what is in the tables. If a fault did not
// strike, the run fails.
//
// The result is a report.Report. Its verdicts come from the counts alone: this package does not know the expected
// result.
package compare
