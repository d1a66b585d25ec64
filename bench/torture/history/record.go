package history

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// Recorder writes the operations of one process. It is safe for concurrent use. Each line is one write, so that no line
// is lost or cut off when the process is killed.
type Recorder struct {
	mu   sync.Mutex
	file *os.File
}

// NewRecorder makes a file for a process's operations.
func NewRecorder(path string) (*Recorder, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("make a history: %w", err)
	}
	return &Recorder{file: file}, nil
}

// Begin records that an operation is about to be sent.
func (r *Recorder) Begin(o *Op) error {
	o.Invoked, o.Returned, o.Outcome = Now(), 0, ""
	return r.write(o)
}

// End records an operation's outcome.
func (r *Recorder) End(o *Op) error {
	o.Returned = Now()
	return r.write(o)
}

func (r *Recorder) write(o *Op) error {
	line, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode an operation: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("record an operation: %w", err)
	}
	return nil
}

// Close closes the file.
func (r *Recorder) Close() error { return r.file.Close() }
