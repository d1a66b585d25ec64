package checks

import "fmt"

// Level says how bad a result is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Fault   Level = "fault"
	Skipped Level = "skipped"
)

// What is looked at. A server of a quorum has its number behind the name, and a node of a cluster its address.
const (
	Host     = "host"
	Postgres = "postgres"
	Redis    = "redis"
	Both     = "both"
)

// Result is one thing that was looked at.
type Result struct {
	Server string `json:"server"`
	// Name is one word, for programs.
	Name  string `json:"name"`
	Level Level  `json:"level"`
	// Found says, for people, what was found.
	Found string `json:"found"`
	// Do says, for people, what to do about it. It is empty if nothing is to be done.
	Do string `json:"do,omitempty"`
}

// Report is the results of all checks.
type Report struct {
	Checks []Result `json:"checks"`
}

// Count returns how many results have a level.
func (r *Report) Count(l Level) (n int) {
	for _, c := range r.Checks {
		if c.Level == l {
			n++
		}
	}
	return n
}

// finding is a result without its name.
type finding struct {
	level     Level
	found, do string
}

// one makes the findings of a check that has one thing to say.
func one(level Level, do, format string, args ...any) ([]finding, error) {
	return []finding{{level, fmt.Sprintf(format, args...), do}}, nil
}

func fine(format string, args ...any) ([]finding, error) { return one(OK, "", format, args...) }

func warning(do, format string, args ...any) ([]finding, error) {
	return one(Warning, do, format, args...)
}

func fault(do, format string, args ...any) ([]finding, error) { return one(Fault, do, format, args...) }

func skipped(do, format string, args ...any) ([]finding, error) {
	return one(Skipped, do, format, args...)
}
