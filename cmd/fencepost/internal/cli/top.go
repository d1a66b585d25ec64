package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/board"
	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/operate"
)

// boardFlags say what a board looks at.
type boardFlags struct {
	serverFlags
	Workers  []string      `sep:" " env:"FENCEPOST_WORKERS" placeholder:"URL" help:"The metrics of workers in Prometheus' format, http://host:9090/metrics, for what only they know: leases lost, writes refused, hand-off times. Repeat the flag, or separate them by spaces in the variable."`
	Interval time.Duration `default:"2s" help:"How long to wait between two looks (default: ${default})."`
	Limit    int           `default:"1000" help:"How many leases at most (default: ${default})."`
}

// Validate refuses addresses that are none.
func (f *boardFlags) Validate() error {
	for _, address := range f.Workers {
		if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return errors.New("--workers is not an address that begins with http or https")
		}
	}
	if err := errors.Join(checkInterval(f.Interval), checkLimit(f.Limit)); err != nil {
		return err
	}
	return f.serverFlags.Validate()
}

// onBoard runs fn on a board of the site that the flags name.
func (f *boardFlags) onBoard(ctx context.Context, fn func(*board.Board) error) error {
	return f.on(ctx, func(site *operate.Site) error {
		return fn(board.New(board.Options{Site: site, Namespace: f.Namespace, Limit: f.Limit, Workers: f.Workers}))
	})
}

type topCommand struct {
	boardFlags
	jsonFlag
	Once bool   `help:"Print one page and end. Without a terminal that is the default."`
	Sort string `enum:"waiting,held,changes,name" default:"waiting" help:"By waiting, held (longest), changes (of holder) or name (default: ${default})."`
}

// Help says what the numbers are.
func (*topCommand) Help() string {
	return `A page of the leases that is drawn anew after each look, from Redis and PostgreSQL alone: it needs no ` +
		`help from workers, and sends them nothing. ` +
		`Keys: w, h, c, n sort by waiting, held, changes and name; q ends.

HELD FOR is the time since the claim. CHANGES are the hand-offs that were seen: the token had risen since the ` +
		`look before, and there may have been more in between. ` +
		`LAST TURN is the time from one claim to the next. Claims are counted by PostgreSQL, for all namespaces of the ` +
		`database, also those rolled back. ` +
		`Leases that were lost, writes that were refused and the time of a hand-off itself leave no trace in either ` +
		`server: with --workers they are read from the workers' own metrics. ` +
		`In brackets is what has been added since the first look.

Examples:

  fencepost top --namespace billing
  fencepost top --once --sort held
  fencepost top --json --workers http://10.0.0.7:9090/metrics`
}

// Run shows pages until it is told to end.
func (c *topCommand) Run(ctx context.Context, std *streams) error {
	return c.onBoard(ctx, func(b *board.Board) error {
		if c.JSON || c.Once || !onTerminal(std.out) {
			page, err := b.Look(ctx)
			switch {
			case err != nil:
				return err
			case c.JSON:
				return std.printJSON(page)
			}
			lines := board.Lines(board.Shot{Page: page}, "", board.View{Order: c.Sort, Colour: inColor(std.out)})
			return std.printf("%s\n", strings.Join(lines, "\n"))
		}
		return c.live(ctx, std, b)
	})
}

// live draws on the terminal until ctx ends, or somebody says q.
func (c *topCommand) live(ctx context.Context, std *streams, b *board.Board) error {
	ctx, stop := untilHangUp(ctx)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	screen, err := newScreen(std.out)
	if err != nil {
		return err
	}
	defer screen.close()
	keys, restore := keysOf(std.in)
	defer restore()

	shots := make(chan board.Shot)
	ended := make(chan error, 1)
	go func() {
		ended <- b.Follow(ctx, c.Interval, func(s board.Shot) error {
			select {
			case shots <- s:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	var last board.Shot
	for {
		if err := screen.draw(c.page(last, screen)); err != nil {
			cancel()
			return errors.Join(err, <-ended)
		}
		select {
		case err := <-ended:
			return err
		case last = <-shots:
		case key := <-keys:
			if key == 'q' || key == 3 { // Ctrl-C is a key on a raw terminal
				cancel()
				return <-ended
			}
			for _, order := range board.Orders() {
				if order[0] == key {
					c.Sort = order
				}
			}
		}
	}
}

// page is what the terminal shows.
func (c *topCommand) page(s board.Shot, on *screen) []string {
	rows := on.height()
	at := "looking…"
	if s.Page != nil {
		at = s.Page.At.Format("15:04:05Z")
	}
	head := fmt.Sprintf("fencepost top   namespace %s   %s   every %v   sorted by %s   (w h c n: sort, q: end)",
		board.Shown(c.Namespace), at, c.Interval, c.Sort)
	problem := ""
	if s.Problem != nil {
		problem = board.Shown(withoutSecrets(s.Problem.Error()))
		rows -= 2
	}
	const headLines, totalLines, tableHead, tableEnd = 2, 5, 1, 1
	v := board.View{
		Order:  c.Sort,
		Rows:   max(1, rows-headLines-totalLines-tableHead-tableEnd),
		Colour: os.Getenv("NO_COLOR") == "",
	}
	lines := append([]string{head, ""}, board.Lines(s, problem, v)...)
	return lines[:min(len(lines), on.height())]
}

// screen is a terminal whose content comes back when it is closed.
type screen struct {
	out  io.Writer
	file *os.File
}

// Sequences of a terminal: another screen, no cursor, no line breaks of its own; and back.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

func newScreen(out io.Writer) (*screen, error) {
	file, _ := out.(*os.File)
	s := &screen{out: out, file: file}
	_, err := io.WriteString(out, enterScreen)
	return s, err
}

// height is asked for at each page, since a window may change.
func (s *screen) height() int {
	if s.file != nil {
		if _, h, err := term.GetSize(int(s.file.Fd())); err == nil && h > 0 { //nolint:gosec // a descriptor
			return h
		}
	}
	return 24
}

// draw replaces what the screen shows, in one write, so that nothing flickers.
func (s *screen) draw(lines []string) error {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, err := io.WriteString(s.out, b.String())
	return err
}

func (s *screen) close() {
	_, _ = io.WriteString(s.out, leaveScreen) // nowhere left to report to
}

// keysOf returns the keys that are pressed on a terminal, until restore is called. Elsewhere there are none. The
// goroutine that reads ends with the process, because a read of a terminal cannot be called off.
func keysOf(in io.Reader) (keys <-chan byte, restore func()) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) { //nolint:gosec // a descriptor
		return nil, func() {}
	}
	before, err := term.MakeRaw(int(file.Fd())) //nolint:gosec // a descriptor
	if err != nil {
		return nil, func() {}
	}
	pressed, stopped := make(chan byte), make(chan struct{})
	go func() {
		key := make([]byte, 1)
		for {
			if n, err := file.Read(key); n == 0 || err != nil {
				return
			}
			select {
			case pressed <- key[0]:
			case <-stopped:
				return
			}
		}
	}()
	return pressed, func() {
		close(stopped)
		_ = term.Restore(int(file.Fd()), before) //nolint:gosec // a descriptor
	}
}
