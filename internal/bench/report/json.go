package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/fencepost-pg/fencepost/internal/bench/measure"
)

// JSON writes all figures as one array.
func JSON(w io.Writer, results []measure.Result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(Rows(results))
}

// JSONFile writes all figures into a file, which it makes or replaces.
func JSONFile(path string, results []measure.Result) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create the JSON file: %w", err)
	}
	if err := JSON(f, results); err != nil {
		_ = f.Close() // the first error tells more
		return fmt.Errorf("write the JSON file: %w", err)
	}
	return f.Close()
}
