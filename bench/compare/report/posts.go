package report

import (
	"fmt"
	"strings"
)

// fencePicture is the picture at the head of the page: a post for each mode, fallen where it lost row changes.
type fencePicture struct {
	Width int
	Desc  string
	Posts []post // those that fell first, so that the others stand before them
	Rails []rail
}

type post struct {
	Mode   string
	X      int // the middle
	Fallen bool
	Lost   string // how many row changes
}

// rail is a piece of wood between two neighbours that stand.
type rail struct{ X, Width int }

// slot is the room of one post.
const slot = 40

func newFencePicture(r *Report) fencePicture {
	var f fencePicture
	var standing []post
	lost := make(map[string]int64)
	ran := make(map[string]bool)
	for i := range r.Cells {
		lost[r.Cells[i].Mode] += r.Cells[i].LostUpdates
		ran[r.Cells[i].Mode] = true
	}
	var words []string
	stood := false
	for _, mode := range Modes() {
		if !ran[mode] {
			continue
		}
		p := post{Mode: mode, X: f.Width + slot/2, Fallen: lost[mode] > 0, Lost: short(lost[mode])}
		if p.Fallen {
			f.Posts = append(f.Posts, p)
		} else {
			if stood {
				f.Rails = append(f.Rails, rail{f.Width - slot/2, slot})
			}
			standing = append(standing, p)
		}
		stood = !p.Fallen
		words = append(words, fmt.Sprintf("%s lost %d", mode, lost[mode]))
		f.Width += slot
	}
	f.Posts = append(f.Posts, standing...)
	f.Desc = "Row changes lost over all cells: " + strings.Join(words, ", ") + "."
	return f
}

// short is a number in at most four characters.
func short(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprint(n)
	case n < 1_000_000:
		return fmt.Sprintf("%dk", n/1000)
	default:
		return fmt.Sprintf("%dM", n/1_000_000)
	}
}
