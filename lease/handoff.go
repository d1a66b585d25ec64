package lease

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencepost-pg/fencepost/internal/clock"
	"github.com/fencepost-pg/fencepost/token"
)

// A hand-off in one message: a release grants the lease to the head of the queue, in the head's name and for as long as
// a reservation lasts, and the message to the head carries the grant. The head trusts it at once, and confirms it in
// the background. See "Waiting" in the package documentation, and handoffmodel_internal_test.go.

// handed is a grant that a release has made in a waiter's name. Its times are the server's, in microseconds.
type handed struct {
	token    token.Token
	at, ends int64
	server   string // its run id
}

// parseHanded reads "<token> <now> <end> <server>". Any other text is no grant.
func parseHanded(text string) (g handed, ok bool) {
	parts := strings.Fields(text)
	if len(parts) != 4 {
		return handed{}, false
	}
	tok, err := token.Parse(parts[0])
	at, errAt := strconv.ParseInt(parts[1], 10, 64)
	ends, errEnds := strconv.ParseInt(parts[2], 10, 64)
	if errors.Join(err, errAt, errEnds) != nil || ends <= at {
		return handed{}, false
	}
	return handed{token: tok, at: at, ends: ends, server: parts[3]}, true
}

// anchor ties a server's clock to ours: the server's clock showed at, in microseconds, after we read ours as sent.
type anchor struct {
	sent   clock.Instant
	at     int64
	server string // its run id; "" if it may not be asked
}

// ttl returns how long after a.sent a grant ends. ok means that the grant may be trusted before the server is asked.
//
// Invariant: the server keeps the grant until a.sent + ttl, by a clock of our rate. That rests on the same server, and
// on the time that it says has passed since it answered. A server that was exchanged or restarted, or whose clock
// stepped back or is ahead of ours by more than a drift, is asked first. So is one whose message took so long that the
// confirmation may come too late.
func (a anchor) ttl(g handed, now clock.Instant) (ttl time.Duration, ok bool) {
	elapsed, _ := now.Since(a.sent)
	passed := time.Duration(g.at-a.at) * time.Microsecond
	kept := time.Duration(g.ends-g.at) * time.Microsecond
	ttl = passed + kept
	if a.server == "" || a.server != g.server || passed < 0 || passed > elapsed+DriftMargin(passed) {
		return 0, false
	}
	late := elapsed - passed // at least as long as the message took
	return ttl, trusted(ttl)-elapsed >= max(kept/2, 4*late)
}

// takeOver makes a lease of a grant that a release has made in a waiter's name. It returns nil if the grant is over;
// the waiter then waits on under another name, because this one is used up.
func (m *Manager) takeOver(ctx context.Context, r *request, me *waiter, g handed) *Lease {
	now := m.opts.clock.now()
	asked := *r
	asked.detached = detach(ctx)
	asked.nonce, asked.secret = me.nonce, me.id
	granted := grant{token: g.token, absent: g.token == 1}
	ttl, ok := r.anchor.ttl(g, now)
	if ok {
		l := m.makeLease(&asked, granted, r.anchor.sent)
		l.granted, l.progressed = now, now.Time
		l.ttl, l.unconfirmed = ttl, r.ttl
		l.toldLate = true // it is not late yet
		l.renewing = make(chan struct{})
		m.keep(l)
		go l.confirm()
		return l
	}
	if m.confirmFirst(ctx, &asked, g) {
		return m.keep(m.makeLease(&asked, granted, now))
	}
	used := r.waiter
	m.subscriber.rename(me)
	m.nameRequest(r, me)
	go m.leave(context.WithoutCancel(ctx), r.ident, used, false) // to the next, if the grant is still there
	return nil
}

// confirmFirst asks the server whether a grant still lasts.
func (m *Manager) confirmFirst(ctx context.Context, r *request, g handed) bool {
	ctx, cancel := context.WithTimeout(ctx, longestAttempt)
	defer cancel()
	answer, pending, err := do(ctx, func() (string, error) {
		return m.backend.runConfirm(ctx, r.ident, r.label, r.ttl, g.token.String())
	})
	return pending == nil && err == nil && answer == replyRenewed
}

// confirm makes the server keep a lease that was handed over for as long as was asked for. If there is no answer in
// half of the time that is left, the keeper goes on, over another connection, until the lease is over.
func (l *Lease) confirm() {
	start := l.now()
	ttl, _ := l.nextTTL()
	ctx, cancel := context.WithTimeout(l.parent, l.Remaining()/2)
	defer cancel()
	answer, pending, err := do(ctx, func() (string, error) {
		return l.m.backend.runConfirm(ctx, l.ident, l.label, ttl, "")
	})
	if pending != nil {
		err = interpret(ctx, "confirm", l.resource, ctx.Err())
	}
	_ = l.renewed(start, ttl, answer, err)
}

// nameRequest puts a waiter's name into its request. The "+" means that a release may grant it the lease. A waiter whom
// no message can reach yet goes without it: the release would draw a token for it and find that nobody has heard of it.
func (m *Manager) nameRequest(r *request, me *waiter) {
	r.waiterNonce, r.waiter, r.holds = me.nonce, me.id+m.subscriber.id, new(atomic.Bool)
	if r.floor == 0 && m.backend.handsOver() && m.subscriber.listening() {
		r.waiter += "+"
	}
}
