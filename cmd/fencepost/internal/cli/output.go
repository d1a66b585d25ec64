package cli

import (
	"encoding/json"
	"fmt"
)

// printJSON writes value as one line.
func (s *streams) printJSON(value any) error {
	if err := json.NewEncoder(s.out).Encode(value); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// printf writes text for people.
func (s *streams) printf(format string, args ...any) error {
	if _, err := fmt.Fprintf(s.out, format, args...); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}
