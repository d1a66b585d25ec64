package history

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

// ReadOps reads the files of recorders. It returns the operations in the order in which they were invoked. A last line
// without an end is that of a process that was killed while it wrote, and is left out.
func ReadOps(paths ...string) ([]Op, error) {
	ops := map[string]Op{}
	for _, path := range paths {
		if err := readFile(path, func(o *Op) {
			if before, ok := ops[o.ID]; !ok || before.Returned == 0 {
				ops[o.ID] = *o
			}
		}); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(ops), func(a, b Op) int {
		return cmp.Or(cmp.Compare(a.Invoked, b.Invoked), cmp.Compare(a.ID, b.ID))
	}), nil
}

func readFile(path string, take func(*Op)) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read a history: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	lines := json.NewDecoder(file)
	for {
		var o Op
		switch err := lines.Decode(&o); {
		case err == nil:
			take(&o)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		default:
			return fmt.Errorf("read %s: %w", path, err)
		}
	}
}

// Read reads a whole history, as Write has written it.
func Read(path string) (*History, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a history: %w", err)
	}
	h := &History{}
	if err := json.Unmarshal(content, h); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return h, nil
}

// Write keeps a history in a file.
func (h *History) Write(path string) error {
	content, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		return fmt.Errorf("encode a history: %w", err)
	}
	if err := os.WriteFile(path, append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("keep a history: %w", err)
	}
	return nil
}
