package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost-pg/fencepost/bench/compare/report"
)

// check returns everything that is wrong with the JSON of a quick run.
func check(text []byte) error {
	if err := shape(text); err != nil {
		return err
	}
	r, err := read(text)
	if err != nil {
		return err
	}
	if r.Error != "" {
		return errors.New("the run is not complete: " + r.Error)
	}
	return errors.Join(r.Validate(), complete(r), unguarded(r), guarded(r))
}

func read(text []byte) (*report.Report, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var r report.Report
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	return &r, nil
}

// shape looks up keys by name, as a program in another language would, so that a missing field does not pass for zero.
func shape(text []byte) error {
	var top struct {
		Cells, Modes, Figures []map[string]json.RawMessage
		LeftOut               []map[string]json.RawMessage `json:"left_out"`
		Versions, Settings    map[string]json.RawMessage
	}
	if err := json.Unmarshal(text, &top); err != nil {
		return fmt.Errorf("read the report: %w", err)
	}
	errs := []error{
		keys(
			"a cell",
			top.Cells,
			"mode",
			"workload",
			"fault",
			"keyed",
			"operations",
			"accepted",
			"refused",
			"refused_by_postgres",
			"lost_updates",
			"duplicates",
			"unknown",
			"unavailable_s",
			"unbalanced",
		),
		keys(
			"a mode",
			top.Modes,
			"mode",
			"ops_per_s",
			"p50_ms",
			"p99_ms",
			"connections_held",
			"round_trips_redis",
			"round_trips_postgres",
		),
		keys("a figure", top.Figures, "name", "value", "unit", "against", "ratio", "target", "met"),
		keys("versions", []map[string]json.RawMessage{top.Versions}, "fencepost", "go", "postgres", "redis", "os", "cpu"),
		keys(
			"settings",
			[]map[string]json.RawMessage{top.Settings},
			"seed",
			"duration_s",
			"ttl_s",
			"workers",
			"quick",
			"command",
			"date",
			"fsync",
			"synchronous_commit",
		),
	}
	if top.LeftOut == nil {
		errs = append(errs, errors.New("left_out is not a list"))
	}
	return errors.Join(errs...)
}

func keys(what string, objects []map[string]json.RawMessage, wanted ...string) error {
	if len(objects) == 0 {
		return fmt.Errorf("%s: the report has none", what)
	}
	for _, o := range objects {
		for _, key := range wanted {
			if o[key] == nil {
				return fmt.Errorf("%s has no %s", what, key)
			}
		}
	}
	return nil
}

// complete checks that no mode is missing, neither among the cells nor among the figures.
func complete(r *report.Report) error {
	var errs []error
	for _, mode := range report.Modes() {
		if !slices.ContainsFunc(r.Cells, func(c report.Cell) bool { return c.Mode == mode && c.Accepted > 0 }) {
			errs = append(errs, fmt.Errorf("%s has no cell in which anything was accepted", mode))
		}
		if !slices.ContainsFunc(r.Modes, func(m report.ModeFigures) bool { return m.Mode == mode && m.OpsPerS > 0 }) {
			errs = append(errs, fmt.Errorf("%s has no figures", mode))
		}
	}
	return errors.Join(errs...)
}

// unguarded checks that the run can detect a loss, and work that is done twice. A comparison in which nothing goes
// wrong proves nothing.
func unguarded(r *report.Report) error {
	var errs []error
	for _, mode := range []string{report.ModeNone, report.ModeRedisLock} {
		if !slices.ContainsFunc(r.Cells, func(c report.Cell) bool {
			return c.Mode == mode && c.Workload == report.WorkloadCounter && c.Fault == report.FaultPause && c.LostUpdates > 0
		}) {
			errs = append(errs, fmt.Errorf("%s lost no update to a paused worker", mode))
		}
	}
	if !slices.ContainsFunc(r.Cells, doneTwice) {
		errs = append(errs, errors.New("a lost reply without a key had nothing done twice: none, redis-lock, for-update"))
	}
	return errors.Join(errs...)
}

// doneTwice reports whether a cell shows the effect of a lost reply on a mode that does not settle its COMMIT.
func doneTwice(c report.Cell) bool {
	asksNobody := c.Mode == report.ModeNone || c.Mode == report.ModeRedisLock || c.Mode == report.ModeForUpdate
	return asksNobody && c.Workload == report.WorkloadCounter && c.Fault == report.FaultCommitReplyLost && !c.Keyed &&
		c.Duplicates > 0
}

// guarded checks that the modes with a guard lost nothing, that their transfers neither created nor lost money, that
// they did nothing twice that had a key, and that they made no invoice twice if every reply arrived.
func guarded(r *report.Report) error {
	var errs []error
	for _, c := range r.Cells {
		if c.Mode == report.ModeNone || c.Mode == report.ModeRedisLock {
			continue
		}
		if c.LostUpdates > 0 {
			errs = append(errs, fmt.Errorf("%s lost %d updates: %s, %s", c.Mode, c.LostUpdates, c.Workload, c.Fault))
		}
		if c.Unbalanced > 0 {
			errs = append(errs, fmt.Errorf("%s has accounts that are off by %d: %s", c.Mode, c.Unbalanced, c.Fault))
		}
		if c.Keyed && c.Duplicates > 0 {
			errs = append(
				errs,
				fmt.Errorf("%s did %d things twice in spite of their keys: %s, %s", c.Mode, c.Duplicates, c.Workload, c.Fault),
			)
		}
		everyReply := c.Fault == report.FaultNone || c.Fault == report.FaultPause
		if c.Workload == report.WorkloadInvoice && everyReply && c.Duplicates > 0 {
			errs = append(errs, fmt.Errorf("%s made %d invoices twice: %s", c.Mode, c.Duplicates, c.Fault))
		}
	}
	return errors.Join(errs...)
}
