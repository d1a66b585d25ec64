package services

import (
	"fmt"
	"os"
	"strings"
)

// envReport names a file to which test binaries append the servers that they used and the tests that they skipped.
const envReport = "FENCEPOST_TEST_REPORT"

// AppendReport appends a line to the file that FENCEPOST_TEST_REPORT names, if any.
func AppendReport(line string) error {
	path := os.Getenv(envReport)
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening %s: %w", envReport, err)
	}
	// One write, so that the lines of concurrent test binaries do not mix.
	if _, err := f.WriteString(line + "\n"); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// ReportSkipped reports that a test was skipped, and why, so that a passing build says what it left out.
func ReportSkipped(test string, reason error) error {
	return AppendReport("skipped\t" + test + "\t" + strings.Join(strings.Fields(reason.Error()), " "))
}
