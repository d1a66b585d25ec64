package web

import (
	"bytes"
	_ "embed" // for the assets
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/board"
)

//go:embed assets/page.html
var pageHTML string

//go:embed assets/style.css
var styleCSS string

//go:embed assets/live.js
var liveJS string

// view is what the template gets.
type view struct {
	Namespace, Version, Order, Problem string
	Since, At                          string
	EveryMS                            int64
	Page                               *board.Page
	Rows                               []board.Row
	Columns                            []column
}

// column is a column of the table. With an order it can be sorted by.
type column struct {
	Title, Order string
	Number       bool
	Aria         string // ascending or descending, if the table is in its order
}

func columns(order string) []column {
	list := []column{
		{Title: "Resource", Order: "name", Aria: "ascending"},
		{Title: "Holder"},
		{Title: "Token", Number: true},
		{Title: "Left", Number: true},
		{Title: "Held for", Order: "held", Number: true, Aria: "descending"},
		{Title: "Waiting", Order: "waiting", Number: true, Aria: "descending"},
		{Title: "Changes", Order: "changes", Number: true, Aria: "descending"},
		{Title: "Last turn", Number: true},
	}
	for i := range list {
		if list[i].Order != order {
			list[i].Aria = ""
		}
	}
	return list
}

// page answers with the page in one of the orders.
func (s *Site) page(w http.ResponseWriter, r *http.Request) {
	order := r.URL.Query().Get("sort")
	if !slices.Contains(board.Orders(), order) {
		order = board.Orders()[0]
	}
	text, err := s.latest.Load().render(s.o, order)
	if err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(text) // the reader may have gone
}

// render makes the page once for each order.
func (s *shot) render(o Options, order string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text, ok := s.pages[order]; ok {
		return text, nil
	}
	v := view{
		Namespace: o.Namespace, Version: o.Version, Order: order, Problem: s.problem, EveryMS: o.Every.Milliseconds(),
		Page: s.Page, Columns: columns(order), Since: s.Since.UTC().Format(time.RFC3339),
	}
	if s.Page != nil {
		v.Rows, v.At = s.Page.Sorted(order), s.Page.At.Format(time.RFC3339)
	}
	var b bytes.Buffer
	if err := pageTemplate().Execute(&b, v); err != nil {
		return nil, err
	}
	if s.pages == nil {
		s.pages = map[string][]byte{}
	}
	s.pages[order] = b.Bytes()
	return b.Bytes(), nil
}

func pageTemplate() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"shown": board.Shown, "short": board.Short, "fine": board.Fine,
		"rate":  func(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) },
		"some":  func(n any) string { return dash(fmt.Sprint(n)) },
		"clock": func(t time.Time) string { return t.UTC().Format("15:04:05Z") },
	}).Parse(pageHTML))
}

func dash(text string) string {
	if text == "0" {
		return "-"
	}
	return text
}

// json answers with what the last look found that succeeded.
func (s *Site) json(w http.ResponseWriter, _ *http.Request) {
	seen := s.latest.Load()
	text, err := json.Marshal(struct {
		*board.Page
		Problem string `json:"problem,omitempty"`
	}{seen.Page, seen.problem})
	if err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // the reader may have gone
}
