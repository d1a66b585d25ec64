package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

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
