package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilHangUp returns a context that also ends when the terminal closes, which is no reason to leave databases
// and processes behind, and neither is a reader of our output that goes away: with somebody listening to
// SIGPIPE, writing returns the error. Both last until stop is called.
func untilHangUp(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	return ctx, func() {
		signal.Stop(broken)
		stop()
	}
}
