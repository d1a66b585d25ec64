package report

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Refresh returns a document in Markdown with its generated parts replaced. Such a part stands between the lines
//
//	<!-- generated: NAME -->
//	<!-- end -->
//
// where NAME is overview, cells, modes, figures, left-out or run. A name that nobody knows, a part without an end
// and a document without any part are errors.
func Refresh(document []byte, r *Report) ([]byte, error) {
	const end = "<!-- end -->\n"
	var out bytes.Buffer
	parts := 0
	for rest := string(document); ; parts++ {
		before, after, found := strings.Cut(rest, "<!-- generated: ")
		out.WriteString(before)
		if !found {
			break
		}
		name, after, _ := strings.Cut(after, " -->\n")
		write := sections()[name]
		if write == nil {
			return nil, fmt.Errorf("no part is called %q", name)
		}
		_, after, found = strings.Cut(after, end)
		if !found {
			return nil, fmt.Errorf("the part %s has no end", name)
		}
		fmt.Fprintf(&out, "<!-- generated: %s -->\n\n%s\n%s", name, write(r), end)
		rest = after
	}
	if parts == 0 {
		return nil, errors.New("the document has no generated part")
	}
	return out.Bytes(), nil
}

func sections() map[string]func(*Report) string {
	return map[string]func(*Report) string{
		"overview": markdownOverview, "cells": markdownCells, "modes": markdownModes, "figures": markdownFigures,
		"left-out": markdownLeftOut, "run": markdownRun,
	}
}

// markdownTable writes a line for each row. The first column and the named columns contain words.
func markdownTable(heads []string, rows [][]string, words ...int) string {
	var b strings.Builder
	b.WriteString("| " + strings.Join(heads, " | ") + " |\n|")
	isWords := make(map[int]bool)
	for _, i := range words {
		isWords[i] = true
	}
	for i := range heads {
		if i == 0 || isWords[i] {
			b.WriteString(" --- |")
		} else {
			b.WriteString(" ---: |")
		}
	}
	b.WriteByte('\n')
	for _, row := range rows {
		for i := range row {
			row[i] = strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(row[i])
		}
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return b.String()
}

func markdownOverview(r *Report) string {
	var parts []string
	for _, m := range matrices(r) {
		heads := []string{m.Workload}
		for _, c := range m.Columns {
			heads = append(heads, c.Label())
		}
		var rows [][]string
		for _, row := range m.Rows {
			line := []string{"`" + row.Mode + "`"}
			for _, e := range row.Entries {
				line = append(line, e.markdown())
			}
			rows = append(rows, line)
		}
		parts = append(parts, markdownTable(heads, rows))
	}
	return strings.Join(parts, "\n")
}

func (e entry) markdown() string {
	switch {
	case e.Cell == nil && e.Left == nil:
		return ""
	case e.Cell == nil:
		return "–"
	}
	var words []string
	if n := e.Cell.LostUpdates; n > 0 {
		words = append(words, fmt.Sprintf("**%d lost**", n))
	}
	if n := e.Cell.Duplicates; n > 0 {
		words = append(words, fmt.Sprintf("**%d twice**", n))
	}
	if words == nil {
		return "ok"
	}
	return strings.Join(words, ", ")
}

func markdownCells(r *Report) string {
	var rows [][]string
	for _, m := range matrices(r) {
		for i, c := range m.Columns {
			for _, row := range m.Rows {
				if cell := row.Entries[i].Cell; cell != nil {
					rows = append(rows, append([]string{m.Workload, c.Label(), "`" + row.Mode + "`"}, cellNumbers(cell)...))
				}
			}
		}
	}
	return markdownTable(
		[]string{
			"workload",
			"fault",
			"mode",
			"operations",
			"accepted",
			"refused",
			"of these by PostgreSQL",
			"lost",
			"duplicates",
			"unknown",
			"unavailable",
		},
		rows,
		1,
		2,
	)
}

func cellNumbers(c *Cell) []string {
	var texts []string
	for _, n := range []int64{
		c.Operations, c.Accepted, c.Refused, c.RefusedByPostgres,
		c.LostUpdates, c.Duplicates, c.Unknown,
	} {
		texts = append(texts, strconv.FormatInt(n, 10))
	}
	return append(texts, seconds(c.UnavailableS))
}

func markdownModes(r *Report) string {
	var rows [][]string
	for _, m := range r.Modes {
		rows = append(
			rows,
			[]string{"`" + m.Mode + "`", m.Rate(), m.P50(), m.P99(), m.TripsRedis(), m.TripsPostgres(), m.Held()},
		)
	}
	return markdownTable(
		[]string{
			"mode",
			"operations/s",
			"p50",
			"p99",
			"trips to Redis",
			"trips to PostgreSQL",
			"connections held by a waiter",
		},
		rows,
	)
}

func markdownFigures(r *Report) string {
	var rows [][]string
	for i := range r.Figures {
		f := &r.Figures[i]
		rows = append(rows, []string{f.Name, f.ValueText(), f.Against, f.RatioText(), f.TargetText(), f.MetText()})
	}
	return markdownTable([]string{"figure", "value", "against", "ratio", "target", "met"}, rows, 2, 5)
}

func markdownLeftOut(r *Report) string {
	var b strings.Builder
	for _, o := range reasons(r) {
		b.WriteString("- " + o.String() + "\n")
	}
	return b.String()
}

func markdownRun(r *Report) string {
	var rows [][]string
	for _, row := range SettingsRows(r) {
		rows = append(rows, []string{row.Name, row.Meaning})
	}
	return markdownTable([]string{"what", "value"}, rows, 1)
}
