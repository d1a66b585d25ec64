package cli

import (
	"io"
	"os"
)

// onTerminal reports whether out is a terminal that can do more than print lines.
func onTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// inColor reports whether out is a terminal whose user has not switched colours off.
func inColor(out io.Writer) bool { return onTerminal(out) && os.Getenv("NO_COLOR") == "" }
