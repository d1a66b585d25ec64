package cli

import (
	"context"
	"errors"
	"runtime/debug"
)

type versionCommand struct {
	JSON bool `name:"json" help:"Print one JSON object."`
}

// Help has an example.
func (*versionCommand) Help() string {
	return `Example:

  fencepost version --json`
}

// version is what version --json prints. It leaves out fields that the build does not know.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
}

// Run prints the version.
func (c *versionCommand) Run(_ context.Context, std *streams) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this program was built without its version")
	}
	v := versionOf(info)
	if c.JSON {
		return std.printJSON(v)
	}
	text := "fencepost " + v.Version
	if v.Revision != "" {
		text += " (" + v.Revision + ", " + v.Time
		if v.Modified {
			text += ", modified"
		}
		text += ")"
	}
	return std.printf("%s %s\n", text, v.Go)
}

// buildVersion is the version of this program, or nothing if the build does not know it.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return versionOf(info).Version
}

func versionOf(info *debug.BuildInfo) version {
	v := version{Version: info.Main.Version, Go: info.GoVersion}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
