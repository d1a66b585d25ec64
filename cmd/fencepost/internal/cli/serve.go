package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/board"
	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/web"
)

type serveCommand struct {
	boardFlags
	jsonFlag
	Listen string `default:"127.0.0.1:7443" placeholder:"ADDRESS" help:"Where to listen: host:port; port 0 takes a free one (default: ${default})."`
	Expose bool   `help:"Allow --listen an address that other machines can reach. The page has no password, and shows the names of resources and holders."`
}

// Help says what is served to whom.
func (*serveCommand) Help() string {
	return `The page of "fencepost top" for browsers, read-only, at /; the same as JSON at /board.json; metrics for ` +
		`Prometheus at /metrics, whose names begin with fencepost_site_; ` +
		`and /healthz, which is 200 if the last look at both servers succeeded and 503 otherwise. However many ask, ` +
		`the servers are looked at every --interval. ` +
		`Without --expose it listens to this machine alone. There it answers only requests for 127.0.0.1, [::1] or ` +
		`localhost, so that no other site's page can read it; a reverse proxy has to send such a Host. ` +
		`From elsewhere: ssh -L 7443:127.0.0.1:7443 HOST. ` +
		`It prints its address and runs until SIGTERM or SIGINT; the status is 0 then.

Examples:

  fencepost serve --namespace billing
  fencepost serve --listen 0.0.0.0:7443 --expose --interval 15s    # for Prometheus, inside a private network`
}

// Validate refuses to be reached by others unless that was asked for.
func (c *serveCommand) Validate() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return errors.New("--listen is not host:port")
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) && !c.Expose {
		return errors.New(
			"--listen is not an address of this machine alone (127.0.0.1, [::1] or localhost): " +
				"add --expose if others may see the page",
		)
	}
	return c.boardFlags.Validate()
}

// Time limits of the server. A request is small, and its answer is in memory.
const (
	readWithin  = 5 * time.Second
	writeWithin = 20 * time.Second
	idleFor     = time.Minute
	stopWithin  = 5 * time.Second
)

// Run serves until ctx ends.
func (c *serveCommand) Run(ctx context.Context, std *streams) error {
	return c.onBoard(ctx, func(b *board.Board) error {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
		if err != nil {
			return err
		}
		site := web.New(web.Options{
			Namespace: c.Namespace, Every: c.Interval, Version: buildVersion(),
			LocalOnly: !c.Expose || isLoopback(listener.Addr()),
			Clean:     func(err error) string { return withoutSecrets(err.Error()) },
		})
		address := "http://" + listener.Addr().String() + "/"
		if err := c.say(std, address); err != nil {
			return errors.Join(err, listener.Close())
		}
		return c.serve(ctx, listener, site, b)
	})
}

// isLoopback reports whether only programs on this host reach an address.
func isLoopback(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// say prints where the page is.
func (c *serveCommand) say(std *streams, address string) error {
	if c.JSON {
		return std.printJSON(struct {
			URL string `json:"url"`
		}{address})
	}
	return std.printf("serves %s\n", address)
}

// serve answers and looks, until ctx ends or one of the two fails.
func (c *serveCommand) serve(ctx context.Context, listener net.Listener, site *web.Site, b *board.Board) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: site.Handler(), ReadHeaderTimeout: readWithin, ReadTimeout: readWithin, WriteTimeout: writeWithin,
		IdleTimeout: idleFor, MaxHeaderBytes: 16 << 10,
	}
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- server.Serve(listener)
	}()
	err := b.Follow(ctx, c.Interval, func(s board.Shot) error {
		site.Show(s)
		return nil
	})
	// Requests that have begun are answered, for as long as they may take.
	bounded, done := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer done()
	if stopped := server.Shutdown(bounded); stopped != nil {
		err = errors.Join(err, server.Close())
	}
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve: %w", failed))
	}
	return err
}
