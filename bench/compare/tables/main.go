// Command tables makes the generated parts of docs/comparison.md, and the JSON beside it, from a report that
// `fencepost compare --json` has printed.
//
//	tables -report FILE -json FILE -markdown FILE
//
// It writes the JSON file again, one value per line. In the Markdown file it keeps what is not generated.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run returns the exit status: 1 after an error, 2 for wrong usage.
func run(args []string, stderr io.Writer) int {
	f := flag.NewFlagSet("tables", flag.ContinueOnError)
	f.SetOutput(stderr)
	from := f.String("report", "", "the report, as compare --json prints it")
	toJSON := f.String("json", "", "the JSON file to write")
	markdown := f.String("markdown", "", "the Markdown file to refresh")
	if err := f.Parse(args); err != nil || f.NArg() > 0 || *from == "" || *toJSON == "" || *markdown == "" {
		f.Usage()
		return 2
	}
	if err := refresh(*from, *toJSON, *markdown); err != nil {
		_, _ = fmt.Fprintln(stderr, "tables:", err) // nowhere left to report to
		return 1
	}
	return 0
}

// refresh writes nothing if the report is not complete, or the document cannot be refreshed.
func refresh(from, toJSON, markdown string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var found report.Report
	if err := json.Unmarshal(text, &found); err != nil {
		return fmt.Errorf("read the report: %w", err)
	}
	if found.Error != "" {
		return errors.New("the run is not complete: " + found.Error)
	}
	if err := found.Validate(); err != nil {
		return err
	}
	document, err := os.ReadFile(markdown)
	if err != nil {
		return err
	}
	refreshed, err := report.Refresh(document, &found)
	if err != nil {
		return fmt.Errorf("refresh %s: %w", markdown, err)
	}
	var indented bytes.Buffer
	if err := report.JSON(&indented, &found); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(toJSON, indented.Bytes(), 0o644), os.WriteFile(markdown, refreshed, 0o644))
}
