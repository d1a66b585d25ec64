package services

import (
	"context"
	"net/url"
	"strconv"
	"syscall"
)

// front is a program in front of PostgreSQL, a pooler or a router, as seen by the user process.
type front struct {
	host *hostProcess
	url  string
}

// startFront starts a host and lets it start the program that a request describes.
func startFront(ctx context.Context, r request) (front, error) {
	h, a, err := startHost(ctx, r)
	if err != nil {
		return front{}, err
	}
	return front{host: h, url: a.FrontURL}, nil
}

// URL returns the address of the database through the program. It may contain a password.
func (f *front) URL() string { return f.url }

// Close stops the program. A second call does nothing.
func (f *front) Close() error { return f.host.close() }

// login is the user and the database that a program in front of PostgreSQL accepts.
type login struct {
	User, Password string
	Database       string
	Query          string // additional parameters of the address
}

func (l login) url(port int) string {
	u := url.URL{
		Scheme: "postgres", Host: "127.0.0.1:" + strconv.Itoa(port), Path: "/" + l.Database,
		User: url.UserPassword(l.User, l.Password), RawQuery: l.Query,
	}
	return u.String()
}

// frontSpec is a program in front of PostgreSQL, as seen by the host.
type frontSpec struct {
	name   string
	login  login
	signal syscall.Signal // the one that ends it fastest with nothing left behind
	// files writes its configuration and returns the arguments that name it.
	files func(l *local, port int) (args []string, err error)
}

func (h *host) startFront(ctx context.Context, spec frontSpec) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, localPatience)
	defer cancel()
	path, err := findServer(spec.name)
	if err != nil {
		return answer{}, err
	}
	l, err := newLocal(ctx)
	if err != nil {
		return answer{}, err
	}
	h.own(l)
	return a, onFreePort(func(port int) (*serverProcess, error) {
		args, err := spec.files(l, port)
		if err != nil {
			return nil, err
		}
		p, err := startProcess(processSpec{name: spec.name, path: path, args: args, dir: l.dir, user: l.user})
		if err != nil {
			return nil, err
		}
		h.own(running{p, spec.signal})
		a.FrontURL = spec.login.url(port)
		_, err = l.askUntilReady(ctx, p, a.FrontURL)
		return p, err
	})
}

// findServer also looks where Debian installs servers, which is not in every user's PATH.
func findServer(name string) (string, error) { return findProgram(name, "/usr/sbin/"+name) }
