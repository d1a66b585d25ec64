// Command slowest reads the output of `go test -json`, prints what `go test` prints without -json, and names the
// ten slowest tests at the end. With -v it prints what `go test -v` prints.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	verbose := flag.Bool("v", false, "print the output of tests that pass as well")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "slowest:", err)
		os.Exit(1)
	}
}
