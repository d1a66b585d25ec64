// Command check reads the JSON of `fencepost compare --quick --json` from standard input and checks that it is what
// every run must find: its shape, all modes, faults that struck, losses without a guard, and none behind a fence, a row
// lock, a version or a constraint. The exit status is 0 if everything holds, else 1.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() { os.Exit(run(os.Stdin, os.Stdout, os.Stderr)) }

func run(in io.Reader, out, errOut io.Writer) int {
	text, err := io.ReadAll(in)
	if err == nil {
		err = check(text)
	}
	if err != nil {
		_, _ = fmt.Fprintln(errOut, "check:", err) // nowhere left to report to
		return 1
	}
	_, _ = fmt.Fprintln(out, "the comparison is what it has to be")
	return 0
}
