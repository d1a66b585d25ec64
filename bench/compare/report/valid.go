package report

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
)

// MarshalJSON writes empty lists as lists, never as null.
func (r Report) MarshalJSON() ([]byte, error) {
	type plain Report // without this method
	p := plain(r)
	p.Cells = orEmpty(p.Cells)
	p.LeftOut = orEmpty(p.LeftOut)
	p.Modes = orEmpty(p.Modes)
	p.Figures = orEmpty(p.Figures)
	if p.Versions == nil {
		p.Versions = map[string]string{}
	}
	return json.Marshal(p)
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Validate returns an error if the report cannot be the result of a run: if it has a number that is NaN, infinite or
// negative, an unknown name, a cell that occurs twice, or more accepted operations than operations. It does not judge
// whether the results are good.
func (r *Report) Validate() error {
	seen := make(map[[4]any]bool)
	for i := range r.Cells {
		c := &r.Cells[i]
		if err := c.validate(); err != nil {
			return fmt.Errorf("cell %s, %s, %s: %w", c.Mode, c.Workload, c.Fault, err)
		}
		id := [4]any{c.Mode, c.Workload, c.Fault, c.Keyed}
		if seen[id] {
			return fmt.Errorf("cell %s, %s, %s is there twice", c.Mode, c.Workload, c.Fault)
		}
		seen[id] = true
	}
	for i := range r.Modes {
		m := &r.Modes[i]
		if err := known("mode", m.Mode, Modes()); err != nil {
			return err
		}
		if err := sane(*m); err != nil {
			return fmt.Errorf("figures of %s: %w", m.Mode, err)
		}
	}
	for i := range r.Figures {
		f := &r.Figures[i]
		if err := sane(f.Figure); err != nil {
			return fmt.Errorf("figure %q: %w", f.Name, err)
		}
		if f.Target != nil && !finite(*f.Target) {
			return fmt.Errorf("figure %q: the target is %v", f.Name, *f.Target)
		}
	}
	if err := sane(r.Settings); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return nil
}

func (c *Cell) validate() error {
	if err := known("mode", c.Mode, Modes()); err != nil {
		return err
	}
	if err := known("workload", c.Workload, Workloads()); err != nil {
		return err
	}
	if err := known("fault", c.Fault, Faults()); err != nil {
		return err
	}
	if c.Accepted > c.Operations {
		return fmt.Errorf("%d of %d operations were accepted", c.Accepted, c.Operations)
	}
	if c.RefusedByPostgres > c.Refused {
		return fmt.Errorf("%d of %d refusals were by PostgreSQL", c.RefusedByPostgres, c.Refused)
	}
	return sane(*c)
}

func known(what, name string, all []string) error {
	if !slices.Contains(all, name) {
		return fmt.Errorf("%q is no %s", name, what)
	}
	return nil
}

// sane looks at the numbers of a struct.
func sane(of any) error {
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch f := v.Field(i); f.Kind() {
		case reflect.Float64:
			if !finite(f.Float()) || f.Float() < 0 {
				return fmt.Errorf("%s is %v", name, f.Float())
			}
		case reflect.Int, reflect.Int64:
			if f.Int() < 0 {
				return fmt.Errorf("%s is %d", name, f.Int())
			}
		default:
		}
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
