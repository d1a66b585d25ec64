package sqlfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Folder is a folder with the migrations of one tool.
type Folder struct {
	path   string
	format Format
	names  []string
	// lines are the lines of comments in the files that are there, each with the highest version of those files.
	lines map[string][]int64
}

// EmptyFolder is a folder in which nothing is.
func EmptyFolder(format Format) *Folder { return &Folder{format: format} }

// OpenFolder reads what is in a folder. A folder that does not exist counts as empty.
func OpenFolder(path string, format Format) (*Folder, error) {
	f := &Folder{path: path, format: format, lines: make(map[string][]int64)}
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the folder: %w", err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		f.names = append(f.names, entry.Name())
		if filepath.Ext(entry.Name()) != ".sql" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(path, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read what is in the folder: %w", err)
		}
		f.note(string(text), f.versionOf(entry.Name()))
	}
	return f, nil
}

// note records the comments of a file with a version.
func (f *Folder) note(text string, version []int64) {
	for line := range strings.Lines(text) {
		comment, found := strings.CutPrefix(strings.TrimSpace(line), "-- ")
		if !found {
			continue
		}
		if before, seen := f.lines[comment]; !seen || slices.Compare(version, before) > 0 {
			f.lines[comment] = version
		}
	}
}

// versionOf returns the version that a file's name begins with; nil if it has none.
func (f *Folder) versionOf(name string) []int64 {
	if m := f.format.versions().FindStringSubmatch(name); m != nil {
		return numbers(m[1])
	}
	return nil
}

// Has reports whether a file of the folder has a step's mark.
func (f *Folder) Has(mark string) bool {
	_, has := f.lines[mark]
	return has
}

// After reports whether the folder has a mark, and has no other mark with a higher version.
func (f *Folder) After(mark, other string) bool {
	return f.Has(mark) && (!f.Has(other) || slices.Compare(f.lines[mark], f.lines[other]) >= 0)
}

// Missing returns those steps that are not in the folder.
func (f *Folder) Missing(steps []Step) []Step {
	return slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return f.Has(s.Mark) })
}

// Number returns the files of steps, with the versions that follow those in the folder.
func (f *Folder) Number(steps []Step, now time.Time) []File {
	last := f.last()
	var files []File
	for _, s := range steps {
		last = f.format.next(last, now)
		files = append(files, f.format.Files(s, last)...)
	}
	return files
}

// Write writes files into the folder, and never over another file. It returns the paths of those that it has written,
// also together with an error.
func (f *Folder) Write(files []File) (paths []string, err error) {
	if err := os.MkdirAll(f.path, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder: %w", err)
	}
	for _, file := range files {
		path := filepath.Join(f.path, file.Name)
		if err := writeNew(path, file.Text); err != nil {
			return paths, fmt.Errorf("write a migration: %w", err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

func writeNew(path, text string) error {
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = to.WriteString(text)
	return errors.Join(err, to.Close())
}

// versions are the versions that files of a tool begin with. goose also has files of Go.
func (f Format) versions() *regexp.Regexp {
	switch f {
	case Flyway:
		return regexp.MustCompile(`^[VU]([0-9]+(?:[._][0-9]+)*)__.*\.sql$`)
	case Goose:
		return regexp.MustCompile(`^([0-9]+)_.*\.(?:sql|go)$`)
	default:
		return regexp.MustCompile(`^([0-9]+)[._].*$`)
	}
}

// last returns the highest version in the folder, or "".
func (f *Folder) last() string {
	pattern := f.format.versions()
	var last string
	for _, name := range f.names {
		m := pattern.FindStringSubmatch(name)
		if m != nil && (last == "" || slices.Compare(numbers(m[1]), numbers(last)) > 0) {
			last = m[1]
		}
	}
	return last
}

// numbers returns the numbers of a version: Flyway's may have several.
func numbers(version string) []int64 {
	var list []int64
	for _, part := range regexp.MustCompile(`[._]`).Split(version, -1) {
		n, _ := strconv.ParseInt(part, 10, 64) // one that is too large is the largest
		list = append(list, n)
	}
	return list
}

const (
	timestamp = "20060102150405"
	// unixDigits is how many digits the seconds since 1970 have.
	unixDigits = 10
)

// next returns the version after the last one: a number after a number, with as many zeros before it, and a timestamp
// after a timestamp, by the clock or one second later.
func (f Format) next(last string, now time.Time) string {
	now = now.UTC()
	if last == "" {
		return f.first(now)
	}
	if at, err := time.Parse(timestamp, last); err == nil {
		return later(now, at).Format(timestamp)
	}
	n := numbers(last)
	number := n[len(n)-1]
	if len(last) == unixDigits && last[0] != '0' {
		return strconv.FormatInt(later(now, time.Unix(number, 0)).Unix(), 10)
	}
	cut := strings.LastIndexAny(last, "._") + 1
	return last[:cut] + fmt.Sprintf("%0*d", len(last)-cut, number+1)
}

func later(now, last time.Time) time.Time {
	if now = now.Truncate(time.Second); now.After(last) {
		return now
	}
	return last.Add(time.Second)
}

// first returns the version of the first file in a folder, as the tool itself would number it.
func (f Format) first(now time.Time) string {
	switch f {
	case Atlas, Dbmate:
		return now.Format(timestamp)
	case GolangMigrate:
		return "000001"
	case Flyway:
		return "1"
	default:
		return "00001"
	}
}
