package model

import (
	"fmt"
	"slices"
)

// search visits every state once, those that take fewer steps first.
type search struct {
	rules  Rules
	bounds Bounds
	until  Violation
	known  map[state]struct{}
	states []state  // known, in the order in which they are visited
	origin []origin // of each
	at     int      // the place of the one that is visited
	result Result
}

// origin is how a state was first reached.
type origin struct {
	before int // the place of the state before
	step   step
}

// step is what happened, as a format and what it is filled with.
type step struct {
	format string
	args   [3]uint8
	n      uint8
}

func stepOf(format string, args ...int) step {
	s := step{format: format, n: uint8(len(args))}
	for i, arg := range args {
		s.args[i] = uint8(arg)
	}
	return s
}

func (s step) String() string {
	args := make([]any, s.n)
	for i := range args {
		args[i] = s.args[i]
	}
	return fmt.Sprintf(s.format, args...)
}

// Search visits every state that the bounds allow. It needs some 100 bytes of memory for each.
func Search(rules Rules, bounds Bounds) Result { return newSearch(rules, bounds, "").run() }

// Find is a Search that ends as soon as a promise is broken.
func Find(v Violation, rules Rules, bounds Bounds) Result { return newSearch(rules, bounds, v).run() }

func newSearch(rules Rules, bounds Bounds, until Violation) *search {
	s := &search{
		rules: rules, bounds: bounds, until: until,
		known: map[state]struct{}{}, result: Result{Broken: map[Violation][]string{}},
	}
	first := state{masters: 1, version: 1}
	for w := bounds.Workers; w < maxWorkers; w++ {
		first.workers[w].phase = gone
	}
	s.to(first, step{})
	return s
}

func (s *search) run() Result {
	for ; s.at < len(s.states) && (s.until == "" || s.result.Broken[s.until] == nil); s.at++ {
		at := s.states[s.at]
		s.redis(at)
		s.collect(at)
		for w := range s.bounds.Workers {
			s.work(at, w)
		}
		if !s.live(at) {
			s.broken(Live, step{})
		}
	}
	s.result.States = len(s.states)
	return s.result
}

// to adds a state that a step leads to.
func (s *search) to(after state, by step) {
	if _, known := s.known[after]; known {
		return
	}
	s.known[after] = struct{}{}
	s.states = append(s.states, after)
	s.origin = append(s.origin, origin{s.at, by})
}

// broken notes a violation by a step, and the steps before it: no fewer lead to it.
func (s *search) broken(v Violation, by step) {
	if s.result.Broken[v] != nil {
		return
	}
	var steps []string
	if by.format != "" {
		steps = append(steps, by.String())
	}
	for at := s.at; at > 0; at = s.origin[at].before {
		steps = append(steps, s.origin[at].step.String())
	}
	slices.Reverse(steps)
	s.result.Broken[v] = steps
}
