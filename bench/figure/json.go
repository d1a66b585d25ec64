package figure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// JSON writes all figures as one array.
func JSON(w io.Writer, figures []Figure) error {
	if figures == nil {
		figures = []Figure{} // an array all the same
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(figures)
}

// JSONFile writes all figures as one array into a file, which it makes or replaces.
func JSONFile(path string, figures []Figure) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create the JSON file: %w", err)
	}
	if err := errors.Join(JSON(f, figures), f.Close()); err != nil {
		return fmt.Errorf("write the JSON file: %w", err)
	}
	return nil
}
