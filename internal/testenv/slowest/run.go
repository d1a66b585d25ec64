package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// count is how many tests are named.
const count = 10

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // in seconds
}

// timed is a top-level test and how long it ran, without the wait for its turn.
type timed struct {
	name string
	took time.Duration
}

// printer prints events as they come. It holds back the output of a test or package until it fails.
type printer struct {
	out     *bufio.Writer
	verbose bool
	kept    map[string][]string // by package and test
	times   []timed
}

// run copies go test's output from in to out and names the slowest tests. The error is that of reading or writing.
func run(in io.Reader, out io.Writer, verbose bool) error {
	p := &printer{out: bufio.NewWriter(out), verbose: verbose, kept: make(map[string][]string)}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			p.line(line)
			if err := p.out.Flush(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	p.rest()
	p.slowest()
	return p.out.Flush()
}

// line prints a line that is not an event unchanged: go test writes such lines as well.
func (p *printer) line(line string) {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Action == "" {
		p.print(line)
		return
	}
	key := e.Package + "." + e.Test
	switch e.Action {
	case "output":
		switch {
		case p.verbose, strings.HasPrefix(e.Test, "Benchmark"):
			p.print(e.Output)
		case !strings.HasPrefix(e.Output, "=== "):
			p.kept[key] = append(p.kept[key], e.Output)
		}
	case "build-output":
		p.print(e.Output)
	case "pass", "skip", "fail":
		p.ended(e, key)
	}
}

func (p *printer) ended(e event, key string) {
	for _, output := range p.kept[key] {
		if e.Action == "fail" || e.Test == "" && isVerdict(output) {
			p.print(output)
		}
	}
	delete(p.kept, key)
	if e.Test != "" && !strings.Contains(e.Test, "/") {
		p.times = append(p.times, timed{key, time.Duration(e.Elapsed * float64(time.Second))})
	}
}

// isVerdict reports whether a line is the result line of a package, which go test always prints.
func isVerdict(output string) bool {
	return strings.HasPrefix(output, "ok  \t") || strings.HasPrefix(output, "?   \t")
}

// rest prints the held output of tests that did not finish.
func (p *printer) rest() {
	for _, key := range slices.Sorted(maps.Keys(p.kept)) {
		for _, output := range p.kept[key] {
			p.print(output)
		}
	}
}

func (p *printer) slowest() {
	if len(p.times) == 0 {
		return
	}
	slices.SortStableFunc(p.times, func(a, b timed) int { return cmp.Compare(b.took, a.took) })
	p.print("\nthe slowest tests:\n")
	for _, t := range p.times[:min(count, len(p.times))] {
		p.print(fmt.Sprintf("  %6.1f s  %s\n", t.took.Seconds(), t.name))
	}
}

func (p *printer) print(text string) { _, _ = p.out.WriteString(text) } // Flush returns the error
