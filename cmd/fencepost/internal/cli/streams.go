package cli

import (
	"io"
	"os"
	"sync"
)

// streams are the streams that a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// share makes the writers safe for concurrent use until end is called: a program that the command runs writes to them,
// and so does what goes on in the background. What the latter writes after the end is dropped. A file needs none of
// this, and a program inherits it as it is.
func (s *streams) share() (end func()) {
	out := &shared{to: s.out}
	err := out
	if s.err != s.out {
		err = &shared{to: s.err}
	}
	if _, file := s.out.(*os.File); !file {
		s.out = out
	}
	if _, file := s.err.(*os.File); !file {
		s.err = err
	}
	return func() {
		out.end()
		err.end()
	}
}

// shared is a writer for several goroutines.
type shared struct {
	mu   sync.Mutex
	to   io.Writer
	over bool
}

// Write writes text as a whole.
func (s *shared) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return len(text), nil
	}
	return s.to.Write(text)
}

func (s *shared) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}
