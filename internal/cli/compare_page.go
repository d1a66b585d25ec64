package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencepost-pg/fencepost/internal/compare/report"
)

// pageFile is where the page goes. It is made before the run, which takes minutes: that the folder is not there
// or may not be written should be known at once. What was there stays until the page is complete. Nil is no file.
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

// write puts the page in its place. One of a run that ended early says so, and replaces none that is there: that may be of a run that did not.
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

// discard removes what is left of a page that was not written.
func (p *pageFile) discard() {
	if p != nil {
		_ = p.file.Close()           // closed already where it was written
		_ = os.Remove(p.file.Name()) // and renamed
	}
}
