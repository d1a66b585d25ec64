package conformance

import "slices"

// Standing says whether a promise holds.
type Standing string

// The standings of a promise.
const (
	Holds    Standing = "holds"     // each of its checks was tried, and held
	Broken   Standing = "broken"    // one of them failed
	NotKnown Standing = "not known" // one of them was not tried
)

// Promise is one of the library's invariants (docs/safety.md), by the checks that it rests on. All of these are of
// PostgreSQL: Redis may lose anything without breaking one.
type Promise struct {
	Name     string   `json:"name"`
	Claim    string   `json:"claim"`
	Standing Standing `json:"standing"`
	// Checks are those that it rests on; of a promise that is broken, those that failed; of one that is not known,
	// those that were not tried.
	Checks []string `json:"checks"`
}

// promises are the promises of safety, with all of their checks.
func promises() []Promise {
	claims := []string{"primary", "encoding", "gate", "claim", "now", "durable"}
	guards := slices.Concat(claims, []string{"guard", "overtaken", "snapshot", "marked"})
	return []Promise{
		{Name: "I1", Claim: "no two grants of a resource are claimed with the same token", Checks: claims},
		{Name: "I2", Claim: "claimed tokens of a resource rise", Checks: claims},
		{Name: "I3", Claim: "once a token is claimed, no guarded write under a lower one commits", Checks: guards},
		{
			Name: "I7", Claim: "nothing is written between a read under a claim and the write that follows it",
			Checks: append(slices.Clone(guards), "lost-update"),
		},
	}
}

// Promises returns which promises hold, by the checks of PostgreSQL. It returns none if PostgreSQL was not checked.
func (r *Report) Promises() []Promise {
	verdicts := make(map[string]Verdict)
	for _, c := range r.Checks {
		if c.Server == Postgres {
			verdicts[c.Name] = c.Verdict
		}
	}
	if len(verdicts) == 0 {
		return nil
	}
	list := promises()
	for i := range list {
		list[i].judge(verdicts)
	}
	return list
}

func (p *Promise) judge(verdicts map[string]Verdict) {
	with := func(v Verdict) (names []string) {
		for _, name := range p.Checks {
			if verdicts[name] == v || v == NotTried && verdicts[name] == "" {
				names = append(names, name)
			}
		}
		return names
	}
	p.Standing = Holds
	if failed := with(Failed); len(failed) > 0 {
		p.Standing, p.Checks = Broken, failed
	} else if untried := with(NotTried); len(untried) > 0 {
		p.Standing, p.Checks = NotKnown, untried
	}
}
