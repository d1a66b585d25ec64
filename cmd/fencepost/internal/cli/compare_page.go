package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
)

// pageFile is the file of the page. It is created before the run, which takes minutes, so that a missing or read-only
// folder is reported at once. An existing page stays until the new one is complete. A nil pageFile writes nothing.
type pageFile struct {
	path string
	file *os.File
}

// newPageFile returns nil for an empty path.
func newPageFile(path string) (*pageFile, error) {
	if path == "" {
		return nil, nil
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("--html=%s is not a file that can be replaced", path)
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".fencepost-*.html")
	if err != nil {
		return nil, fmt.Errorf("create the page: %w", err)
	}
	return &pageFile{path: path, file: file}, nil
}

// write puts the page in its place. The page of a run that ended early says so. It does not replace an existing page,
// which may be that of a complete run.
func (p *pageFile) write(found *report.Report, complete bool) error {
	if p == nil {
		return nil
	}
	if !complete {
		if _, err := os.Lstat(p.path); err == nil {
			return fmt.Errorf("the page %s is still that of an earlier run", p.path)
		}
	}
	buffer := bufio.NewWriter(p.file)
	if err := errors.Join(report.HTML(buffer, found), buffer.Flush(), p.file.Chmod(0o644), p.file.Close()); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	if err := os.Rename(p.file.Name(), p.path); err != nil {
		return fmt.Errorf("put the page in its place: %w", err)
	}
	return nil
}

// discard removes the temporary file of a page that was not written.
func (p *pageFile) discard() {
	if p != nil {
		_ = p.file.Close()           // already closed if it was written
		_ = os.Remove(p.file.Name()) // already renamed if it was written
	}
}
