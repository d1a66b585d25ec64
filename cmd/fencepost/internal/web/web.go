package web

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencepost-pg/fencepost/cmd/fencepost/internal/board"
)

// Options say what the page says about itself.
type Options struct {
	Namespace string
	Every     time.Duration // between two looks
	Version   string
	// LocalOnly answers only requests that name this machine as their host. A foreign page could otherwise have a browser
	// read this one, under a name of its own that leads here.
	LocalOnly bool
	// Clean takes secrets out of the text of an error.
	Clean func(error) string
}

// Site is the page and its neighbours. It is safe for concurrent use.
type Site struct {
	o      Options
	latest atomic.Pointer[shot]
}

// shot is a board's shot with the pages that have been rendered of it.
type shot struct {
	board.Shot
	problem string
	mu      sync.Mutex
	pages   map[string][]byte // by order
}

// New returns a site that has not been shown anything yet.
func New(o Options) *Site {
	s := &Site{o: o}
	s.latest.Store(&shot{})
	return s
}

// Show replaces what the site shows.
func (s *Site) Show(seen board.Shot) {
	next := &shot{Shot: seen}
	if seen.Problem != nil {
		next.problem = board.Shown(s.o.Clean(seen.Problem))
	}
	s.latest.Store(next)
}

// Handler answers requests.
func (s *Site) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /board.json", s.json)
	mux.HandleFunc("GET /healthz", s.health)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry(), promhttp.HandlerOpts{MaxRequestsInFlight: 8}))
	mux.HandleFunc("GET /style.css", asset(styleCSS, "text/css; charset=utf-8"))
	mux.HandleFunc("GET /live.js", asset(liveJS, "text/javascript; charset=utf-8"))
	return s.guarded(mux)
}

// guarded sets the headers of every answer, and turns away requests for another host.
func (s *Site) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set(
			"Content-Security-Policy",
			"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "+
				"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if s.o.LocalOnly && !local(r.Host) {
			http.Error(w, "this page is for this machine alone: ask for 127.0.0.1 or localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// local reports whether a request's host is this machine. A name would have to be looked up, and is not trusted.
func local(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// health says whether the last look succeeded.
func (s *Site) health(w http.ResponseWriter, _ *http.Request) {
	switch seen := s.latest.Load(); {
	case seen.problem != "":
		http.Error(w, seen.problem, http.StatusServiceUnavailable)
	case seen.Page == nil:
		http.Error(w, "has not looked yet", http.StatusServiceUnavailable)
	default:
		_, _ = w.Write([]byte("ok\n")) // the reader may have gone
	}
}

func asset(text, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write([]byte(text)) // the reader may have gone
	}
}
