package lease

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencepost-pg/fencepost/token"
)

// manyInOne bounds how many resources one call of a script is about, and so for how long the script keeps the server
// from everybody else: a fraction of a millisecond.
const manyInOne = 128

// inOneCall reports whether n resources can be asked for in one call of a script. In a cluster their keys are on
// several servers, and a confirmation covers one grant.
//
// Invariant: acquire and release alone hold the rules. The scripts for several resources do their simplest case and
// leave out all else. What they leave out is then asked for under the same nonce, and so is everything if the server
// refuses such a call, perhaps in the middle: acquire finds what that nonce was granted.
func (s *scripts) inOneCall(n int) bool { return n > 1 && s.batcher != nil && !s.durability.asked() }

func (s *scripts) sendAcquireAll(ctx context.Context, all []*request) []future[grant] {
	if s.inOneCall(len(all)) && all[0].floor == 0 {
		return inOne(s, all, func(group []*request) *scriptCall {
			return newScriptCall(ctx, group[0].detached, s.grantingAll, s.acquireAllCommand(group))
		}, func(p *scriptCall, group []*request) ([]grant, []error) { return s.grantedAll(ctx, p, group) })
	}
	answers := make([]future[grant], len(all))
	if s.durability.asked() { // a confirmation covers the writes of one connection
		few := make(chan struct{}, manySenders)
		for i, r := range all {
			answers[i] = async(func() (grant, error) {
				few <- struct{}{}
				defer func() { <-few }()
				if ctx.Err() != nil {
					return grant{}, interpret(ctx, "acquire", r.resource, errNotSent)
				}
				return s.runAcquire(ctx, r)
			})
		}
		return answers
	}
	calls := make([]*scriptCall, len(all))
	for i, r := range all {
		p := s.acquireCall(ctx, r)
		calls[i] = p
		answers[i] = future[grant]{p.done, func() (grant, error) { return s.granted(ctx, r, p.reply, p.err) }}
	}
	s.sendTogether(calls)
	return answers
}

func (s *scripts) sendReleaseAll(ctx context.Context, all []ident) []future[string] {
	if s.inOneCall(len(all)) {
		return inOne(s, all, func(group []ident) *scriptCall {
			return newScriptCall(ctx, ctx, s.releasingAll, s.releaseAllCommand(group))
		}, func(p *scriptCall, group []ident) ([]string, []error) { return s.releasedAll(ctx, p, group) })
	}
	answers, calls := make([]future[string], len(all)), make([]*scriptCall, len(all))
	for i, id := range all {
		p := s.releaseCall(ctx, id)
		calls[i] = p
		answers[i] = future[string]{p.done, func() (string, error) {
			return s.handedOn(id, p.reply), s.failed(ctx, "release", id.resource, p.err)
		}}
		if s.batcher == nil {
			answers[i] = async(func() (string, error) {
				if <-p.done; slotMoves(p.err) {
					return s.runRelease(ctx, id)
				}
				return s.handedOn(id, p.reply), s.failed(ctx, "release", id.resource, p.err)
			})
		}
	}
	s.sendTogether(calls)
	return answers
}

func (s *scripts) acquireCall(ctx context.Context, r *request) *scriptCall {
	return newScriptCall(ctx, r.detached, s.granting, s.acquireCommand(r))
}

func (s *scripts) releaseCall(ctx context.Context, id ident) *scriptCall {
	return newScriptCall(ctx, ctx, s.releasing, s.releaseCommand(id, "0"))
}

// inOne sends one call for each manyInOne of all, and returns the answers in the order of all. end makes the answers of
// one call, once it has ended.
func inOne[A, T any](
	s *scripts, all []A, call func([]A) *scriptCall, end func(*scriptCall, []A) ([]T, []error),
) []future[T] {
	answers := make([]future[T], 0, len(all))
	var calls []*scriptCall
	for group := range slices.Chunk(all, manyInOne) {
		p, done := call(group), make(chan struct{})
		calls = append(calls, p)
		var values []T
		var errs []error
		go func() {
			defer close(done)
			<-p.done
			values, errs = end(p, group)
		}()
		for i := range group {
			answers = append(answers, future[T]{done, func() (T, error) { return values[i], errs[i] }})
		}
	}
	s.sendTogether(calls)
	return answers
}

func (s *scripts) acquireAllCommand(all []*request) []any {
	command := make([]any, 0, 7+3*len(all))
	command = append(command, evalSHA, s.grantingAll.hash, 3*len(all))
	for _, r := range all {
		command = append(command, r.keys.counter)
	}
	for _, r := range all {
		command = append(command, r.keys.lease)
	}
	for _, r := range all {
		command = append(command, r.keys.queue)
	}
	nonces := make([]byte, 0, 32*len(all))
	for _, r := range all {
		nonces = append(nonces, r.digits()...)
	}
	label := s.label
	if all[0].label != label {
		label = all[0].label
	}
	return append(command, nonces, s.ttlArgument(all[0].ttl), label, s.idle)
}

// grantedAll reads the reply of acquire_all, and asks acquire about each resource that it left out. It asks about all
// of them if the server refused the call: then acquire says why, and finds what was granted before.
func (s *scripts) grantedAll(ctx context.Context, p *scriptCall, all []*request) (grants []grant, errs []error) {
	grants, errs = make([]grant, len(all)), make([]error, len(all))
	rest, _ := p.reply.(string)
	left := leftOut(p, all, func(i int) bool {
		var digits string
		digits, rest, _ = strings.Cut(rest, " ")
		tok, err := token.Parse(digits)
		grants[i] = grant{token: tok, absent: tok == 1}
		return err == nil
	}, func(i int, err error) { grants[i], errs[i] = s.granted(ctx, all[i], nil, err) })
	s.sendAlone(left, func(i int) *scriptCall { return s.acquireCall(ctx, all[i]) }, func(i int, p *scriptCall) {
		err := p.err
		if errors.Is(err, errNotSent) { // yet the call for several may have granted it, if go-redis sent that twice
			err = ctx.Err()
		}
		grants[i], errs[i] = s.granted(ctx, all[i], p.reply, err)
	})
	return grants, errs
}

func (s *scripts) releaseAllCommand(all []ident) []any {
	command := make([]any, 0, 4+2*len(all))
	command = append(command, evalSHA, s.releasingAll.hash, 2*len(all))
	for _, id := range all {
		command = append(command, id.keys.lease)
	}
	for _, id := range all {
		command = append(command, id.keys.queue)
	}
	nonces := make([]byte, 0, 32*len(all))
	for _, id := range all {
		nonces = append(nonces, id.digits()...)
	}
	return append(command, nonces)
}

// releasedAll reads the reply of release_all, as grantedAll does that of acquire_all.
func (s *scripts) releasedAll(ctx context.Context, p *scriptCall, all []ident) (answers []string, errs []error) {
	answers, errs = make([]string, len(all)), make([]error, len(all))
	digits, _ := p.reply.(string)
	left := leftOut(p, all, func(i int) bool {
		answers[i] = replyReleased
		return i < len(digits) && digits[i] == '1'
	}, func(i int, err error) { errs[i] = s.failed(ctx, "release", all[i].resource, err) })
	s.sendAlone(left, func(i int) *scriptCall { return s.releaseCall(ctx, all[i]) }, func(i int, p *scriptCall) {
		answers[i], errs[i] = s.handedOn(all[i], p.reply), s.failed(ctx, "release", all[i].resource, p.err)
	})
	return answers, errs
}

// leftOut returns the places that a call for several resources did not decide about. A call that was not answered has
// failed for all of them: it may have done its work for each.
func leftOut[A any](p *scriptCall, all []A, decided func(int) bool, failed func(int, error)) (left []int) {
	for i := range all {
		switch {
		case p.err != nil && !isAnswer(p.err):
			failed(i, p.err)
		case p.err != nil || !decided(i):
			left = append(left, i)
		}
	}
	return left
}

// sendAlone sends a call for each place, together, and waits for their answers.
func (s *scripts) sendAlone(places []int, call func(int) *scriptCall, answered func(int, *scriptCall)) {
	calls := make([]*scriptCall, len(places))
	for i, place := range places {
		calls[i] = call(place)
	}
	s.sendTogether(calls)
	for i, p := range calls {
		<-p.done
		answered(places[i], p)
	}
}

// sendTogether sends calls in as few pipelines as possible, and returns at once. A cluster's servers get one each: one
// that hangs must not hold up the answers of the others.
func (s *scripts) sendTogether(calls []*scriptCall) {
	switch {
	case len(calls) == 0:
	case s.batcher != nil:
		s.batcher.takeAll(calls)
	default:
		go func() { // a cluster client may have to look its servers up
			for _, group := range byServer(s.client, calls, (*scriptCall).key) {
				go s.sendPipeline(group)
			}
		}()
	}
}

// key is the lease key of a call.
func (p *scriptCall) key() string {
	key, _ := p.command[3].(string)
	return key
}

// sendPipeline sends calls in one pipeline.
func (s *scripts) sendPipeline(calls []*scriptCall) {
	began := time.Now()
	ctx := calls[0].detached
	pipe := s.client.Pipeline()
	sent := make([]*redis.Cmd, len(calls))
	for i, p := range calls {
		sent[i] = evaluation(p.detached, p.command)
		_ = pipe.Process(p.detached, sent[i]) // it is queued
	}
	_, err := pipe.Exec(ctx) // each command has its own error
	s.trips.ended(began, err)
	var unknown sync.WaitGroup
	for i, p := range calls {
		if err := sent[i].Err(); redis.HasErrorPrefix(err, "NOSCRIPT") { // a pipeline does not fall back by itself
			unknown.Go(func() {
				p.end(p.script.run(ctx, s.client, p.command))
			})
			continue
		}
		p.end(sent[i].Result())
	}
	unknown.Wait()
}

// takeAll is take for several calls, which travel together.
func (b *batcher) takeAll(calls []*scriptCall) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, calls...)
	for pipelines := (len(calls) + maxTogether - 1) / maxTogether; pipelines > 0 && b.senders < fewSenders; pipelines-- {
		b.senders++
		go b.start()
	}
	if b.senders >= fewSenders && !b.watching {
		b.watch()
	}
}
