package conformance

// Verdict is the outcome of a check.
type Verdict string

// The verdicts.
const (
	OK       Verdict = "ok"
	Failed   Verdict = "failed"
	NotTried Verdict = "not tried"
)

// The servers that are checked.
const (
	Postgres = "postgres"
	Redis    = "redis"
)

// Result is the result of one check.
type Result struct {
	Server string `json:"server"`
	// Name is one word, for programs.
	Name string `json:"name"`
	// Claim says, for people, what must hold.
	Claim string `json:"claim"`
	// Part is the only part of the library that needs it, such as "NewAdvisory". Empty if the whole library needs it.
	Part    string  `json:"part,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Why is the reason of a verdict that is not OK. For OK it is empty, or says what the check found.
	Why string `json:"why,omitempty"`
}

// Report is the result of all checks.
type Report struct {
	Checks []Result `json:"checks"`
}

// Count returns how many checks have a verdict.
func (r *Report) Count(v Verdict) (n int) {
	for _, c := range r.Checks {
		if c.Verdict == v {
			n++
		}
	}
	return n
}

// Holds reports whether everything that the whole library relies on was tried and holds. A check that only one part
// needs may be untried.
func (r *Report) Holds() bool {
	for _, c := range r.Checks {
		if c.Verdict == Failed || c.Verdict == NotTried && c.Part == "" {
			return false
		}
	}
	return len(r.Checks) > 0
}
