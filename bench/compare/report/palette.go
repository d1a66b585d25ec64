package report

import (
	"fmt"
	"strings"
)

// Palette are the colours of the page, as #rrggbb. What stands on what, and with which contrast, is in
// [Palette.Pairs].
type Palette struct {
	Page, Surface, Rule    string // the ground, that of tables and charts, and lines
	Text, Muted, Link      string
	Bar, Bar2              string // of charts
	Loss, OnLoss           string // updates were lost
	Twice, OnTwice         string // work was done more than once
	Fine, OnFine           string // neither
	Rail                   string // what carries the posts of the fence
	OutlineLoss, OutlineOK string // around a post
}

// Light returns the colours for a light screen.
func Light() Palette {
	return Palette{
		Page: "#faf8f3", Surface: "#ffffff", Rule: "#ddd8cc", Text: "#1d1c1a", Muted: "#5c584f", Link: "#1b5a9c",
		Bar: "#2d5f8f", Bar2: "#a8681a", Loss: "#fad9d2", OnLoss: "#861b0c", Twice: "#fae6bf", OnTwice: "#664300",
		Fine: "#dfeee2", OnFine: "#1c4f2e", Rail: "#b9b2a2", OutlineLoss: "#a93322", OutlineOK: "#3d7a52",
	}
}

// Dark returns the colours for a dark screen.
func Dark() Palette {
	return Palette{
		Page: "#131519", Surface: "#1b1e24", Rule: "#373b44", Text: "#ecebe6", Muted: "#aaa79e", Link: "#8fc0f4",
		Bar: "#7eb0e2", Bar2: "#dfa851", Loss: "#4f1810", OnLoss: "#ffcbc0", Twice: "#45310a", OnTwice: "#ffe0a0",
		Fine: "#17351f", OnFine: "#b8e4c3", Rail: "#565b66", OutlineLoss: "#e0705f", OutlineOK: "#6bb383",
	}
}

// Pair is a colour on another one.
type Pair struct {
	Name, Over, Under string
	// Ratio is the least contrast: 4.5 for text, 3 for what is drawn.
	Ratio float64
}

// Pairs returns what stands on what.
func (p *Palette) Pairs() []Pair {
	const text, drawn = 4.5, 3
	return []Pair{
		{"text on the page", p.Text, p.Page, text},
		{"text on a table", p.Text, p.Surface, text},
		{"muted text on the page", p.Muted, p.Page, text},
		{"muted text on a table", p.Muted, p.Surface, text},
		{"link on the page", p.Link, p.Page, text},
		{"loss", p.OnLoss, p.Loss, text},
		{"done twice", p.OnTwice, p.Twice, text},
		{"neither", p.OnFine, p.Fine, text},
		{"bar", p.Bar, p.Surface, drawn},
		{"second bar", p.Bar2, p.Surface, drawn},
		{"outline of a fallen post", p.OutlineLoss, p.Page, drawn},
		{"outline of a post", p.OutlineOK, p.Page, drawn},
		{"focus on a table", p.Link, p.Surface, drawn},
	}
}

// css declares the colours as custom properties.
func (p *Palette) css() string {
	var b strings.Builder
	for _, v := range [][2]string{
		{"page", p.Page},
		{"surface", p.Surface},
		{"rule", p.Rule},
		{"text", p.Text},
		{"muted", p.Muted},
		{"link", p.Link},
		{"bar", p.Bar},
		{"bar2", p.Bar2},
		{"loss", p.Loss},
		{"on-loss", p.OnLoss},
		{"twice", p.Twice},
		{"on-twice", p.OnTwice},
		{"fine", p.Fine},
		{"on-fine", p.OnFine},
		{"rail", p.Rail},
		{"outline-loss", p.OutlineLoss},
		{"outline-fine", p.OutlineOK},
	} {
		fmt.Fprintf(&b, "--%s:%s;", v[0], v[1])
	}
	return b.String()
}
