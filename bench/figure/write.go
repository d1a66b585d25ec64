package figure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// Targets writes those figures that have one, each on a line with its ratio, met or not.
func Targets(w io.Writer, figures []Figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	// The last cell of a line has no tab and is not aligned: it stays empty.
	if _, err := fmt.Fprint(t, "  ratio\tmiddle half\ttarget\tmet\t\n"); err != nil {
		return err
	}
	for _, f := range figures {
		if f.Target == nil {
			continue
		}
		verdict := "NO"
		if f.Met {
			verdict = "yes"
		}
		_, err := fmt.Fprintf(t, "  %.3f\t%.3f to %.3f\t%s %.2f\t%s\t   %s, to %s\n",
			f.Ratio, f.middle.Low, f.middle.High, f.want, *f.Target, verdict, f.Name, f.Against)
		if err != nil {
			return err
		}
	}
	return t.Flush()
}

// JSONFile writes all figures as one array into a file, which it makes or replaces.
func JSONFile(path string, figures []Figure) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create the JSON file: %w", err)
	}
	e := json.NewEncoder(f)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if figures == nil {
		figures = []Figure{} // an array all the same
	}
	return errors.Join(e.Encode(figures), f.Close())
}
