package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// play is the director's side of one play.
type play struct {
	kind    Kind
	opts    Options
	writer  writer
	stage   *stage
	began   time.Time
	stopped time.Time // when A came to a stop
	row     Row       // as it was last seen
	end     End
}

// perform plays one play and returns how it ended. When it returns, no worker runs and nothing is left on the servers.
func perform(ctx context.Context, o Options, kind Kind, w writer) (end *End, err error) {
	stage, err := newStage(o, kind)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stage.strike(ctx)) }()
	if err := stage.build(ctx); err != nil {
		return nil, err
	}
	p := &play{kind: kind, opts: o, writer: w, stage: stage, began: time.Now()}
	return p.perform(ctx)
}

func (p *play) perform(ctx context.Context) (end *End, err error) {
	a, err := p.enter(nameA)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.leave()) }()
	if err := p.tellRow(ctx, Event{Worker: nameA, Text: p.starts(a)}); err != nil {
		return nil, err
	}
	for _, scene := range []func(context.Context, *actor) error{
		p.takeLease, p.stopA, p.takeOver, p.resumeA, p.lateWrite,
	} {
		if err := scene(ctx, a); err != nil {
			return nil, err
		}
	}
	return &p.end, nil
}

func (p *play) enter(name string) (*actor, error) {
	return enter(p.opts.Worker, script{
		Name: name, PostgresURL: p.opts.PostgresURL, Database: p.stage.name, RedisURL: p.opts.RedisURL,
		Namespace: p.stage.name, TTL: p.opts.TTL, Writer: p.writer, AwaitCue: name == nameA,
	}, p.opts.Patience)
}

func (p *play) starts(w *actor) string { return fmt.Sprintf("starts, pid %d", w.process.PID()) }

// takeLease follows a worker until it has read the row.
func (p *play) takeLease(ctx context.Context, w *actor) error {
	r, err := w.next(ctx, isHeld, isGranted)
	if err != nil {
		return err
	}
	if r.What == isHeld {
		p.tell(Event{Worker: w.name, Text: "waits for " + r.Holder + "'s lease"})
		if r, err = w.next(ctx, isGranted); err != nil {
			return err
		}
	}
	if w.name == nameA {
		p.end.A = r.Token
	} else {
		p.end.B = r.Token
	}
	// This ignores the row: the director reads it after the worker has reported its write, or it would appear too
	// early.
	_, fence, err := p.stage.look(ctx)
	if err != nil {
		return err
	}
	p.tell(Event{Worker: w.name, Text: fmt.Sprintf("has lease, token %d", r.Token), Lease: w.name, Fence: fence})
	if r, err = w.next(ctx, isRead); err != nil {
		return err
	}
	p.tell(Event{Worker: w.name, Text: fmt.Sprintf("reads %q", r.Value)})
	return nil
}

func (p *play) stopA(ctx context.Context, a *actor) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.opts.Patience, fmt.Errorf("still running after %v", p.opts.Patience))
	defer cancel()
	if err := a.process.Stop(ctx); err != nil {
		return fmt.Errorf("stop worker A: %w", err)
	}
	p.stopped = time.Now()
	p.tell(Event{Worker: nameA, Text: "STOPPED by SIGSTOP", Tone: Stopped})
	return nil
}

// takeOver is all that worker B does.
func (p *play) takeOver(ctx context.Context, _ *actor) (err error) {
	b, err := p.enter(nameB)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.leave()) }()
	p.tell(Event{Worker: nameB, Text: p.starts(b)})
	if err := p.takeLease(ctx, b); err != nil {
		return err
	}
	r, err := b.next(ctx, isAccepted)
	if err != nil {
		return err
	}
	if err := p.tellRow(ctx, Event{Worker: nameB, Text: fmt.Sprintf("writes %q", r.Value)}); err != nil {
		return err
	}
	if want := (Row{Value: paidBy(nameB), Token: p.end.B}); p.row != want {
		return fmt.Errorf("worker B wrote %v, and the row is %v", want, p.row)
	}
	if r, err = b.next(ctx, isOver); err != nil {
		return err
	}
	if r.Lost != "" {
		return fmt.Errorf("worker B had lost its lease: %s", r.Lost)
	}
	if err := b.exit(ctx); err != nil {
		return err
	}
	p.tell(Event{Worker: nameB, Text: "gives it back, ends", Lease: nobody})
	return nil
}

// pastTTL is how much longer than its TTL A is stopped, at least.
const pastTTL = 100 * time.Millisecond

// resumeA resumes A once its lease has certainly run out.
func (p *play) resumeA(ctx context.Context, a *actor) error {
	rest := time.NewTimer(time.Until(p.stopped.Add(p.opts.TTL + pastTTL)))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-a.process.Done():
		return fmt.Errorf("worker A ended while it was stopped, %s", a.process.How())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := a.process.Send("go on"); err != nil {
		return fmt.Errorf("give worker A its cue: %w", err)
	}
	if err := a.process.Resume(); err != nil {
		return fmt.Errorf("resume worker A: %w", err)
	}
	p.tell(Event{Worker: nameA, Text: "RESUMED by SIGCONT", Tone: Resumed})
	return nil
}

// lateWrite records the outcome of A's write.
func (p *play) lateWrite(ctx context.Context, a *actor) error {
	r, err := a.next(ctx, isAccepted, isRefused)
	if err != nil {
		return err
	}
	e := Event{Worker: nameA, Text: fmt.Sprintf("writes %q: ACCEPTED", paidBy(nameA)), Tone: Damage}
	p.end.StaleWrite = Accepted
	if r.What == isRefused {
		e.Text = fmt.Sprintf("writes %q: REFUSED, token %d is stale, current is %d", paidBy(nameA), r.Token, r.Current)
		e.Tone = Rescue
		p.end.StaleWrite, p.end.StaleToken, p.end.CurrentToken = Refused, r.Token, r.Current
	}
	if err := p.tellRow(ctx, e); err != nil {
		return err
	}
	p.end.Row = p.row
	if r, err = a.next(ctx, isOver); err != nil {
		return err
	}
	if r.Lost == "" {
		return errors.New("worker A still had its lease after all")
	}
	p.tell(Event{Worker: nameA, Text: fmt.Sprintf("looks at its lease: lost (%s)", r.Lost)})
	return a.exit(ctx)
}

// tell reports an event to the audience.
func (p *play) tell(e Event) {
	e.At = time.Since(p.began)
	p.opts.Watch(p.kind, e)
}

// tellRow is tell, with the state of the row in PostgreSQL.
func (p *play) tellRow(ctx context.Context, e Event) (err error) {
	p.row, e.Fence, err = p.stage.look(ctx)
	if err != nil {
		return err
	}
	seen := p.row
	e.Row = &seen
	p.tell(e)
	return nil
}
