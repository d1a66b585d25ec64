package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// signalError is the cause of a context that a signal has ended.
type signalError struct{ signal os.Signal }

func (e *signalError) Error() string { return e.signal.String() + " signal received" }

// Is makes it an end like any other: what returns a context's cause returns this.
func (e *signalError) Is(target error) bool { return target == context.Canceled }

// untilSignal returns a context that ends when one of the signals arrives, until stop is called. Its cause then is a
// *signalError, so that the exit status does not depend on which of two listeners heard the signal first.
func untilSignal(ctx context.Context, signals ...os.Signal) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, signals...)
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case s := <-heard:
			cancel(&signalError{s})
		case <-stopped:
			cancel(nil)
		}
	}()
	return ctx, func() {
		signal.Stop(heard)
		close(stopped)
		<-ended
		cancel(nil)
	}
}

// interruptedBy gives an error the status of the signal that led to it, if one has ended ctx.
func interruptedBy(ctx context.Context, err error) error {
	var by *signalError
	if err == nil || !errors.As(context.Cause(ctx), &by) {
		return err
	}
	number, _ := by.signal.(syscall.Signal)
	return &statusError{128 + int(number), err}
}

// untilHangUp returns a context that also ends when the terminal closes, so that no databases and processes are left
// behind. It also listens to SIGPIPE, so that a write returns an error if the reader of our output has gone away. Both
// last until stop is called.
func untilHangUp(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	return ctx, func() {
		signal.Stop(broken)
		stop()
	}
}
