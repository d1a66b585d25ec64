// Package compare runs the same work under every way of coordinating it and under every fault, and counts what each
// costs and loses: `fencepost compare`.
//
// A run is a plan of cells. A cell is one mode, one workload and one fault; it has a database of its own, Redis servers
// that nobody else uses meanwhile, and worker processes whose connections all pass through relays of its own. It goes like this: the
// workers work undisturbed, the fault strikes one of them at a point that it has announced, they work on, they are stopped, and the
// audit counts what is in the tables. A fault that did not strike fails the run.
//
// What was found is a report.Report. Its verdicts come from the counts alone; nothing here knows what should come out.
package compare
