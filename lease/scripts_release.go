package lease

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func (s *scripts) release(
	ctx context.Context,
	id ident,
	within time.Duration,
) (answer string, pending func() error, err error) {
	if s.batcher == nil {
		return async(func() (string, error) { return s.runRelease(ctx, id) }).await(ctx, within)
	}
	reply, pending, err := s.batcher.await(ctx, s.batcher.take(ctx, ctx, s.releasing, s.releaseCommand(id, "0")), within)
	if pending != nil {
		return "", pending, nil
	}
	return s.handedOn(id, reply), nil, interpret(ctx, "release", id.resource, err)
}

// releaseWhole is release without a time limit.
func (s *scripts) releaseWhole(ctx context.Context, id ident) (answer string, err error) {
	if s.batcher == nil {
		return s.runRelease(ctx, id)
	}
	answer, _, err = s.release(detach(ctx), id, 0)
	return answer, err
}

func (s *scripts) releaseCommand(id ident, already string) []any {
	return []any{
		evalSHA, s.releasing.hash, 3, id.keys.lease, id.keys.queue, id.keys.counter,
		id.secret, s.channel, s.reservation, s.counts, already, grantMS,
	}
}

func (s *scripts) runRelease(ctx context.Context, id ident) (string, error) {
	reply, err := s.handOn(ctx, id, false)
	if slotMoves(err) {
		// The slot is migrating. Only the lease key can be reached; the waiters follow once the slot has moved.
		reply, err = s.releasing.run(ctx, s.client, []any{
			evalSHA, s.releasing.hash, 1, id.keys.lease, id.secret, s.channel, s.reservation, s.counts, "0",
		})
		if err == nil {
			go s.handOnLater(context.WithoutCancel(ctx), id)
		}
	}
	return s.handedOn(id, reply), s.failed(ctx, "release", id.resource, err)
}

// handedOn takes the reply of a script that may have handed a lease on. The reply then says for how long it is
// reserved.
func (s *scripts) handedOn(id ident, reply any) string {
	if n, _ := reply.(int64); n == 1 {
		return replyReleased
	}
	text, _ := reply.(string)
	word, ms, more := strings.Cut(text, " ")
	if !more {
		return word
	}
	if n, err := strconv.Atoi(ms); err == nil {
		s.follow.up(id, time.Duration(n)*time.Millisecond)
	}
	return word
}

// slotMoves reports whether a cluster refused a script because its slot is migrating and not all of its keys are
// present. Redis says so before it runs the script. Valkey 8.1 says so when the script reaches a missing key, as a
// plain ERR.
func slotMoves(err error) bool {
	return redis.HasErrorPrefix(err, "TRYAGAIN") || err != nil && strings.Contains(err.Error(), "access a non local key")
}

// handOn releases the lease to the head of the queue; free means that the lease is released already.
func (s *scripts) handOn(ctx context.Context, id ident, free bool) (reply any, err error) {
	already := "0"
	if free {
		already = "1"
	}
	return s.releasing.run(ctx, s.client, s.releaseCommand(id, already))
}

// handOnLater hands on a lease that was released while its slot was migrating. It tries for as long as waiters may
// sleep; after that they look by themselves.
func (s *scripts) handOnLater(ctx context.Context, id ident) {
	pause := 10 * time.Millisecond
	for waited := time.Duration(0); waited < lookEvery; waited += pause {
		pause = min(2*pause, time.Second)
		due := make(chan struct{})
		s.clock.afterFunc(pause, func() { close(due) })
		<-due
		if reply, err := s.handOn(ctx, id, true); !slotMoves(err) {
			s.handedOn(id, reply)
			return
		}
	}
}

func (s *scripts) runLeave(ctx context.Context, id ident, waiter string, held bool) error {
	kept, err := s.leave.Run(ctx, s.client, []string{id.keys.lease, id.keys.queue}, waiter, s.channel).Text()
	if kept == replyReserved || kept == replyGranted && !held {
		id.secret = waiter[:32]
		var reply any
		reply, err = s.handOn(ctx, id, false)
		s.handedOn(id, reply)
	}
	return s.failed(ctx, "leave the queue of", id.resource, err)
}

// grantMS is the least time for which a release grants a lease to a waiter. It is longer than the shortest reservation:
// a holder that has returned and is then short of processors loses the lease if it does not confirm in time, where one
// that was only told to come would have lost a turn.
const grantMS = 1000

// handsOver is true where one server decides, can say who it is, and need not have its grants confirmed by others.
func (s *scripts) handsOver() bool {
	return s.batcher != nil && !s.durability.asked() && s.reservation != any(0) && !s.anonymous.Load()
}

func (s *scripts) runConfirm(
	ctx context.Context,
	id ident,
	label string,
	ttl time.Duration,
	tok string,
) (string, error) {
	began := time.Now()
	reply, err := s.confirm.Run(ctx, s.client, []string{id.keys.lease, id.keys.counter},
		id.secret, milliseconds(ttl), label, s.idle, tok).Text()
	s.trips.ended(began, err)
	return reply, s.failed(ctx, "confirm", id.resource, err)
}
