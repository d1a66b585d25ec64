//go:build unix

package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/demo"
)

// C01 with a real process and a real SIGSTOP: both endings, and nothing is left behind.
func TestCase01_BothPlaysEndAsTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var text bytes.Buffer
	timeline := demo.NewTimeline(&text, false)
	watch := b.opts.Watch
	b.opts.Watch = func(kind demo.Kind, e demo.Event) {
		watch(kind, e)
		timeline.Watch(kind, e)
		if e.Lease != "" && len(b.keys(t)) == 0 {
			t.Error("there is no key: the search for keys left behind looks at the wrong place")
		}
		if len(b.databases(t)) != 1 {
			t.Error("there is not one database: the search for databases left behind looks at the wrong place")
		}
	}
	got, err := demo.Run(t.Context(), &b.opts)
	if err != nil {
		t.Fatal(err)
	}
	timeline.End(got)
	want := demo.Result{
		Unfenced: &demo.End{Row: demo.Row{Value: "paid by A", Token: 1}, StaleWrite: demo.Accepted, A: 1, B: 2},
		Fenced: &demo.End{
			Row: demo.Row{Value: "paid by B", Token: 2}, StaleWrite: demo.Refused, StaleToken: 1, CurrentToken: 2, A: 1, B: 2,
		},
	}
	if *got.Unfenced != *want.Unfenced || *got.Fenced != *want.Fenced {
		t.Errorf("unfenced: %v; fenced: %v", got.Unfenced, got.Fenced)
	}
	b.wantNothingLeft(t, 4)
	wantTimeline(t, text.String())
	b.wantAStoppedPastItsTTL(t)
}

// wantAStoppedPastItsTTL: A was stopped for longer than its lease can have lasted, and B had come and
// gone by then.
func (b *bundle) wantAStoppedPastItsTTL(t *testing.T) {
	t.Helper()
	for _, kind := range []demo.Kind{demo.Unfenced, demo.Fenced} {
		var order []string
		var stopped time.Duration
		for i, e := range b.events {
			if b.kinds[i] != kind {
				continue
			}
			order = append(order, e.Worker+" "+strings.Trim(strings.Fields(e.Text)[0], ",:"))
			switch e.Tone {
			case demo.Stopped:
				stopped = e.At
			case demo.Resumed:
				if pause := e.At - stopped; pause <= b.opts.TTL {
					t.Errorf("%s: A was stopped for %v, and its TTL is %v", kind, pause, b.opts.TTL)
				}
			case demo.Plain, demo.Damage, demo.Rescue:
			}
		}
		got := strings.Join(order, ", ")
		// B need not wait if its start took longer than A's lease lasted.
		const want = `^A starts, A has, A reads, A STOPPED, B starts, (B waits, )?B has, B reads, B writes, B gives, ` +
			`A RESUMED, A writes, A looks$`
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: things happened in this order: %s", kind, got)
		}
	}
}

// wantTimeline checks what a person must be able to see.
func wantTimeline(t *testing.T, text string) {
	t.Helper()
	for _, line := range strings.Split(text, "\n") {
		if len(line) >= 90 || strings.TrimRight(line, " ") != line {
			t.Errorf("too long or padded: %q", line)
		}
	}
	for _, part := range []string{
		`time    worker A               worker B               lease  fence  row`,
		` s  STOPPED by SIGSTOP`,
		` s  :                      has lease, token 2     B      2`,
		` s  :                      writes "paid by B"                   "paid by B", token 2`,
		` s  writes "paid by A":                                         "paid by A", token 1`,
		`        ACCEPTED                                                    (it was 2)`,
		` s  writes "paid by A":                                         "paid by B", token 2`,
		`        REFUSED, token 1 is`,
		`        lost (expired)`,
		`unfenced: row = "paid by A", token 1`,
		`fenced:   row = "paid by B", token 2`,
		`token 1 is stale, the fence is at 2.`,
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the timeline lacks %q:\n%s", part, text)
		}
	}
}

// The control: without the mechanism the demo fails. It also fails if the mechanism is in the run that should be
// without it, because then it shows nothing.
func TestABrokenFenceIsNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ unfenced, fenced, want string }{
		"fenced play without guard": {demo.PlainWriter, demo.PlainWriter, "fenced: want a stale write refused"},
		"unfenced play with guard":  {demo.GuardedWriter, demo.GuardedWriter, "unfenced: want a stale write accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			got, err := demo.RunWith(t.Context(), &b.opts, c.unfenced, c.fenced)
			if !errors.Is(err, demo.ErrNotAsTold) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want that the end is not as told", err)
			}
			if got.Unfenced == nil || got.Fenced == nil || got.Fenced.StaleWrite != got.Unfenced.StaleWrite {
				t.Errorf("got %+v, want both ends, and equal ones", got)
			}
			b.wantNothingLeft(t, 4)
		})
	}
}

// Every ending that differs from the story is noticed.
func TestCheckComparesEverything(t *testing.T) {
	t.Parallel()
	told := func() demo.Result {
		return demo.Result{
			Unfenced: &demo.End{Row: demo.Row{Value: "paid by A", Token: 3}, StaleWrite: demo.Accepted, A: 3, B: 5},
			Fenced: &demo.End{
				Row: demo.Row{Value: "paid by B", Token: 5}, StaleWrite: demo.Refused, StaleToken: 3, CurrentToken: 5, A: 3, B: 5,
			},
		}
	}
	as := told()
	if err := as.Check(); err != nil {
		t.Errorf("as told: %v", err)
	}
	for name, change := range map[string]func(r *demo.Result){
		"no unfenced end":      func(r *demo.Result) { r.Unfenced = nil },
		"no fenced end":        func(r *demo.Result) { r.Fenced = nil },
		"unfenced refused":     func(r *demo.Result) { r.Unfenced.StaleWrite = demo.Refused },
		"unfenced value":       func(r *demo.Result) { r.Unfenced.Row.Value = "paid by B" },
		"unfenced token":       func(r *demo.Result) { r.Unfenced.Row.Token = 5 },
		"unfenced stale token": func(r *demo.Result) { r.Unfenced.StaleToken = 3 },
		"fenced accepted":      func(r *demo.Result) { r.Fenced.StaleWrite = demo.Accepted },
		"fenced value":         func(r *demo.Result) { r.Fenced.Row.Value = "paid by A" },
		"fenced token":         func(r *demo.Result) { r.Fenced.Row.Token = 3 },
		"stale token":          func(r *demo.Result) { r.Fenced.StaleToken = 2 },
		"current token":        func(r *demo.Result) { r.Fenced.CurrentToken = 6 },
		"tokens that fall":     func(r *demo.Result) { r.Fenced.A, r.Fenced.B = 5, 3 },
		"tokens that are none": func(r *demo.Result) { *r.Fenced = demo.End{StaleWrite: demo.Refused} },
	} {
		r := told()
		change(&r)
		if err := r.Check(); !errors.Is(err, demo.ErrNotAsTold) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// C28 and the promise to scripts: tokens are strings, and the result has these fields and no others.
func TestCase28_ResultInJSON(t *testing.T) {
	t.Parallel()
	const high = 1<<53 + 1
	got, err := json.Marshal(demo.Result{
		Unfenced: &demo.End{Row: demo.Row{Value: "paid by A", Token: 1}, StaleWrite: demo.Accepted, A: 1, B: 2},
		Fenced: &demo.End{
			Row: demo.Row{Value: "paid by B", Token: high}, StaleWrite: demo.Refused, StaleToken: 1, CurrentToken: high,
		},
	})
	const want = `{"unfenced":{"row":{"value":"paid by A","token":"1"},"stale_write":"accepted"},` +
		`"fenced":{"row":{"value":"paid by B","token":"9007199254740993"},"stale_write":"refused",` +
		`"stale_token":"1","current_token":"9007199254740993"}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	t.Parallel()
	good := demo.Options{
		PostgresURL: "postgres://u:hunter2@127.0.0.1:1/d",
		RedisURL:    "redis://:hunter2@127.0.0.1:1",
		Worker:      []string{"/bin/true"},
	}
	for name, change := range map[string]func(o *demo.Options){
		"no PostgreSQL":          func(o *demo.Options) { o.PostgresURL = "" },
		"no PostgreSQL address":  func(o *demo.Options) { o.PostgresURL = "postgres://u:hunter2@h:x/d" },
		"no Redis":               func(o *demo.Options) { o.RedisURL = "" },
		"no Redis address":       func(o *demo.Options) { o.RedisURL = "redis://:hunter2@h:x" },
		"no worker":              func(o *demo.Options) { o.Worker = nil },
		"a name that needs care": func(o *demo.Options) { o.Name = `a"b` },
		"a long name":            func(o *demo.Options) { o.Name = strings.Repeat("a", 41) },
		"a negative TTL":         func(o *demo.Options) { o.TTL = -1 },
		"too little patience":    func(o *demo.Options) { o.TTL, o.Patience = time.Second, time.Second },
		"a server that is away":  func(*demo.Options) {},
	} {
		o := good
		change(&o)
		got, err := demo.Run(t.Context(), &o)
		if err == nil || got == nil || got.Unfenced != nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// A program whose main does not know the worker command would start itself again and again.
func TestAWorkerDoesNotDirect(t *testing.T) {
	t.Setenv(demo.WorkerEnv, "1")
	b := setup(t)
	if _, err := demo.Run(t.Context(), &b.opts); err == nil || !strings.Contains(err.Error(), "RunWorker") {
		t.Errorf("got %v", err)
	}
	b.wantNothingLeft(t, 0)
}

// Interrupted at any point, the demo ends soon and leaves nothing: A may be stopped, B may be waiting.
func TestInterruptedAnywhere(t *testing.T) {
	t.Parallel()
	for _, at := range []struct {
		text      string
		processes int
	}{
		{"starts", 1},
		{"reads", 1},
		{"STOPPED", 1},
		{"waits", 2},
		{`writes "paid by B"`, 2},
		{"gives it back", 2}, // A is stopped, and the rest of its TTL is waited for
		{"RESUMED", 2},
		{"ACCEPTED", 2},
	} {
		t.Run(at.text, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			if at.text == "waits" {
				b.opts.TTL = 10 * time.Second // B must come in time
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b.when(at.text, cancel)
			got, err := demo.Run(ctx, &b.opts)
			if !errors.Is(err, context.Canceled) || errors.Is(err, demo.ErrNotAsTold) || got.Fenced != nil {
				t.Errorf("got %+v, %v", got, err)
			}
			b.wantNothingLeft(t, at.processes)
		})
	}
}

// A panic of the director, while A is stopped, leaves nothing either.
func TestAPanicLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.when("STOPPED", func() { panic("oh") })
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = demo.Run(t.Context(), &b.opts)
	}()
	b.wantNothingLeft(t, 1)
}
